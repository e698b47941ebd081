# The vanidl authors, MIT

from spack_repo.builtin.build_systems.python import PythonPackage

from spack.package import *


class PyVanidlIo(PythonPackage):
    """Where does training time go to I/O, is it hidden behind compute, and did the change
    help? Reads Darshan and DFTracer logs and profiler traces of deep-learning jobs."""

    pypi = "vanidl_io/vanidl_io-0.2.0.tar.gz"

    license("MIT", checked_by="vanidl")

    # The digest is that of the release.
    version("0.2.0", sha256="0" * 64)

    variant("parquet", default=True, description="Write Parquet, survey many jobs")
    variant("darshan", default=False, description="Read counters of newer versions of Darshan")
    variant("figures", default=False, description="Write figures for papers")
    variant("tensorboard", default=False, description="A tab in TensorBoard")

    depends_on("python@3.10:", type=("build", "run"))
    depends_on("py-setuptools@77:", type="build")

    depends_on("py-numpy@1.26:2", type=("build", "run"))
    depends_on("py-pandas@2:3", type=("build", "run"))
    depends_on("py-google-crc32c@1.3:1", type=("build", "run"))
    depends_on("py-isal@1.1:1", type=("build", "run"))
    depends_on("py-jinja2@3.1:3", type=("build", "run"))
    depends_on("py-orjson@3.9:3", type=("build", "run"))
    depends_on("py-rich@13:15", type=("build", "run"))

    depends_on("py-pyarrow@15:26", type=("build", "run"), when="+parquet")
    depends_on("py-darshan@3.4.4:3", type=("build", "run"), when="+darshan")
    depends_on("py-matplotlib@3.8:3", type=("build", "run"), when="+figures")
    depends_on("py-tensorboard@2.15:2", type=("build", "run"), when="+tensorboard")

"""The statistics that the workloads' docstrings claim, measured on full-size samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("h5py", reason="h5py is not installed")

from vanidl_loaders.workloads import cosmoflow, deepcam, images, ptycho
from vanidl_loaders.workloads.registry import find_workload


def full(module, seed=0, samples=10, size=None):
    size = module.SIZE if size is None else size
    return module.describe(Path("unused"), samples=samples, seed=seed, size=size)


@pytest.fixture(scope="module")
def counts():
    return [cosmoflow.sample(full(cosmoflow, seed), 0)["counts"] for seed in (0, 1)]


@pytest.fixture(scope="module")
def sample():
    return deepcam.sample(full(deepcam), 0)


class TestPtycho:
    def test_sizes_are_the_papers(self):
        described = full(ptycho, samples=ptycho.SAMPLES)
        assert described.sample_nbytes == 196_608
        assert len(described) * len(described.fields) == 262_896
        assert len(described) * described.sample_nbytes == pytest.approx(17.2e9, rel=0.01)

    def test_patterns_are_bright_in_the_centre_and_the_object_is_smooth(self):
        arrays = ptycho.sample(full(ptycho), 4)
        pattern = arrays["diffraction"] ** 2
        assert pattern.sum() == pytest.approx(ptycho.PHOTONS, rel=0.05)
        assert pattern[48:80, 48:80].sum() > 0.8 * pattern.sum()
        assert np.median(pattern) < 0.01 * pattern.max()
        assert 0 <= arrays["amplitude"].min() <= arrays["amplitude"].max() <= 1
        assert np.abs(arrays["phase"]).max() <= np.float32(np.pi)
        for name in ("amplitude", "phase"):
            assert np.abs(np.diff(arrays[name])).mean() < 0.2 * arrays[name].std()


class TestCosmoflow:
    def test_size_and_type(self, counts):
        assert counts[0].shape == (4, 128, 128, 128)
        assert counts[0].dtype == np.int16
        assert counts[0].nbytes == 16_777_216
        assert full(cosmoflow, size=512).fields[0].nbytes == pytest.approx(1.07e9, rel=0.01)

    def test_a_few_hundred_unique_values(self, counts):
        for each in counts:
            assert 400 <= len(np.unique(each)) <= 700  # the paper's example: 558

    def test_tens_of_thousands_of_unique_groups(self, counts):
        for each in counts:
            groups = np.ascontiguousarray(each.reshape(4, -1).T).view("<i8")
            assert 30_000 <= len(np.unique(groups)) <= 45_000  # the paper's example: 36,944

    def test_frequencies_follow_a_power_law(self, counts):
        for each in counts:
            frequency = np.bincount(each.ravel())
            values = np.flatnonzero(frequency >= 20)
            values = values[values >= 2]
            x, y = np.log(values), np.log(frequency[values])
            assert len(values) > 50
            assert np.corrcoef(x, y)[0, 1] < -0.99
            assert -3.5 < np.polyfit(x, y, 1)[0] < -1.5

    def test_one_particle_a_voxel_in_the_mean(self, counts):
        np.testing.assert_allclose([each.mean() for each in counts[0]], 1.0, atol=0.01)

    def test_larger_samples_need_more_than_16_bits(self):
        counts = cosmoflow.sample(full(cosmoflow, size=256), 0)["counts"][:, :128]  # a half has
        groups = np.sort(np.ascontiguousarray(counts.reshape(4, -1).T).view("<i8").ravel())
        assert np.count_nonzero(np.diff(groups)) > 65_535


class TestDeepcam:
    def test_size_and_type(self, sample):
        assert sample["climate/data"].shape == (16, 768, 1152)
        assert sample["climate/data"].nbytes == pytest.approx(56.6e6, rel=0.01)

    def test_x_is_the_smoothest_direction(self, sample):
        for channel in sample["climate/data"]:
            along_y = np.abs(np.diff(channel, axis=0)).mean()
            assert np.abs(np.diff(channel, axis=1)).mean() < 0.8 * along_y

    def test_few_lines_hold_abrupt_changes(self, sample):
        steps = np.abs(np.diff(sample["climate/data"][:14], axis=2))
        usual = np.median(steps, axis=(1, 2), keepdims=True)
        abrupt = (steps > 30 * usual).any(axis=2)
        assert 0.01 < abrupt.mean() < 0.25
        marked = sample["climate/labels_0"].any(axis=1)
        assert (abrupt.any(axis=0) == marked).mean() > 0.99

    def test_some_lines_are_constant(self, sample):
        constant = (np.ptp(sample["climate/data"], axis=2) == 0).mean()
        assert 0.001 < constant < 0.1


def test_images_have_the_papers_mean_size(tmp_path):
    pytest.importorskip("PIL", reason="pillow is not installed")
    from vanidl_loaders.workloads.making import make

    made = make("images", tmp_path, samples=10)
    sizes = [made.path(i).stat().st_size for i in range(10)]
    assert np.mean(sizes) == pytest.approx(140e9 / 1.2e6, rel=0.1)
    assert len({made.path(i).parent for i in range(10)}) == images.CLASSES


@pytest.mark.parametrize("name", ["ptycho", "cosmoflow", "deepcam", "images"])
def test_a_model_learns_its_workload(name, small):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from vanidl_loaders.data.readers import open_reader
    from vanidl_loaders.loader.batches import collate

    samples = small(name)
    workload, reads = find_workload(name), open_reader(samples)
    batch = collate([reads.read(i) for i in range(len(samples))])
    torch.manual_seed(0)
    model = workload.model(samples)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = workload.loss(model, batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]

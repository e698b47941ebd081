"""JSON Schema of every JSON output, made from the records that the outputs are made from."""

from vanidl.schema.meanings import means
from vanidl.schema.schema import Kind, Maybe, Partly, fields_of, schema_of

__all__ = ["Kind", "Maybe", "Partly", "fields_of", "means", "schema_of"]

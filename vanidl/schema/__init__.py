"""JSON Schema of every JSON output, made from the records that the outputs are made from."""

from vanidl.schema.kinds import Kind, Maybe, Partly, fields_of
from vanidl.schema.schema import schema_of

__all__ = ["Kind", "Maybe", "Partly", "fields_of", "schema_of"]

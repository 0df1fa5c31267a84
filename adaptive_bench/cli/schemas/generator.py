"""JSON Schema of a type, by pydantic, with every object closed: it has the keys that it names, and no others."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue


class _Closed(GenerateJsonSchema):
    """Pydantic's schema of a dataclass or a `TypedDict` lets other keys through."""

    def dataclass_schema(self, schema: Any) -> JsonSchemaValue:
        return _closed(super().dataclass_schema(schema))

    def typed_dict_schema(self, schema: Any) -> JsonSchemaValue:
        return _closed(super().typed_dict_schema(schema))


def schema_of(kind: Any, about: dict[str, str]) -> dict[str, Any]:
    """The schema of what is written of values of a type, so that a field with a default is there too.

    Args:
        about: `title` and `description` of the whole.
    """
    found = TypeAdapter(kind).json_schema(mode="serialization", schema_generator=_Closed)
    return {"$schema": GenerateJsonSchema.schema_dialect, **about} | {
        key: value for key, value in found.items() if key not in about
    }


def _closed(found: JsonSchemaValue) -> JsonSchemaValue:
    return found if "$ref" in found else found | {"additionalProperties": False}

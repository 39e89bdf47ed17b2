"""tf.train.Example by protobuf itself, its descriptor made here, and TFRecord files written slowly."""

import functools
import struct
from collections.abc import Iterable, Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

Values = Iterable[float] | Iterable[int] | Iterable[bytes]


@functools.cache
def example_class() -> Any:
    """The class of tf.train.Example."""
    file = descriptor_pb2.FileDescriptorProto(name="example.proto", package="test", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto

    def message(name: str, *fields: tuple[str, int, int, str, bool]) -> descriptor_pb2.DescriptorProto:
        made = file.message_type.add(name=name)
        for field, number, kind, type_name, repeated in fields:
            label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
            made.field.add(name=field, number=number, type=kind, type_name=type_name or None, label=label)
        return made

    message("BytesList", ("value", 1, kinds.TYPE_BYTES, "", True))
    message("FloatList", ("value", 1, kinds.TYPE_FLOAT, "", True))
    message("Int64List", ("value", 1, kinds.TYPE_INT64, "", True))
    lists = ("bytes_list", ".test.BytesList"), ("float_list", ".test.FloatList"), ("int64_list", ".test.Int64List")
    feature = message(
        "Feature", *((name, i, kinds.TYPE_MESSAGE, kind, False) for i, (name, kind) in enumerate(lists, 1))
    )
    feature.oneof_decl.add(name="kind")
    for field in feature.field:
        field.oneof_index = 0
    features = message("Features", ("feature", 1, kinds.TYPE_MESSAGE, ".test.Features.FeatureEntry", True))
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=kinds.TYPE_MESSAGE, type_name=".test.Feature",
                    label=kinds.LABEL_OPTIONAL)  # fmt: skip
    message("Example", ("features", 1, kinds.TYPE_MESSAGE, ".test.Features", False))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("test.Example"))


def serialized(features: Mapping[str, tuple[str, Values]]) -> bytes:
    """An Example with these features: by name, the field's name (`int64_list`, …) and values."""
    example = example_class()()
    for name, (kind, values) in features.items():
        getattr(example.features.feature[name], kind).SetInParent()
        getattr(example.features.feature[name], kind).value.extend(values)
    return bytes(example.SerializeToString(deterministic=True))


def crc32c(data: bytes) -> int:
    """CRC-32C bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def framed(record: bytes) -> bytes:
    """A record as it stands in a TFRecord file."""

    def masked(data: bytes) -> bytes:
        crc = crc32c(data)
        return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)

    length = struct.pack("<Q", len(record))
    return length + masked(length) + record + masked(record)

"""Fails when the protobuf module is older than the file it is generated from."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from google.protobuf import descriptor_pb2
from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PROTO = ROOT / "core" / "webgym" / "protocol" / "webgym.proto"


def proto_is_current() -> bool:
    """Compare what the generated module holds with the source.

    The descriptors and not the files: those also differ from one release of protoc to the next.
    """
    from webgym.protocol import webgym_pb2

    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "descriptors"
        if protoc.main(["protoc", f"-I{PROTO.parent}", f"--descriptor_set_out={target}", PROTO.name]) != 0:
            return False
        files = descriptor_pb2.FileDescriptorSet.FromString(target.read_bytes()).file
    wanted = next(f for f in files if f.name == PROTO.name)
    found = descriptor_pb2.FileDescriptorProto()
    webgym_pb2.DESCRIPTOR.CopyToProto(found)
    return without_json_names(wanted) == without_json_names(found)


def without_json_names(file: descriptor_pb2.FileDescriptorProto) -> descriptor_pb2.FileDescriptorProto:
    """Derived names, which protoc leaves out of the module and writes into a descriptor set."""

    def clear(message: descriptor_pb2.DescriptorProto) -> None:
        for field in message.field:
            field.ClearField("json_name")
        for inner in message.nested_type:
            clear(inner)

    for message in file.message_type:
        clear(message)
    return file


def main() -> int:
    """Check, and name the mend."""
    if proto_is_current():
        return 0
    print("core/webgym/protocol/webgym_pb2.py is not what webgym.proto gives: make proto", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())

"""Bad values for every field of a request, made from its descriptor. Each request differs from a good one in
one place.

Each case has a name such as `CreateVolume.capacity_range.required_bytes=negative`; `expected` in expected.py
says, by name, what the answer must be.
"""

import dataclasses

from google.protobuf.descriptor import FieldDescriptor as Field

ID_BYTES, MAP_BYTES, PATH_BYTES = 128, 4096, 4096
NUMBERS = (Field.TYPE_INT32, Field.TYPE_INT64, Field.TYPE_UINT32, Field.TYPE_UINT64)


@dataclasses.dataclass
class Case:
    name: str
    request: object


def cases(method, good):
    """Every bad variant of the good request."""
    for path, parent, field in _fields(good, method):
        for label, change in _changes(field, parent):
            bad = type(good)()
            bad.CopyFrom(good)
            change(_follow(bad, path[1:-1]), field)
            yield Case(f"{'.'.join(map(str, path))}={label}", bad)


def _fields(message, *path):
    """Every field of a message and of the messages set in it: (path of names and indexes, its message, its
    descriptor).
    """
    for field in message.DESCRIPTOR.fields:
        if field.type == Field.TYPE_BOOL or _is_secret(field):
            continue  # both values are good; secrets are ignored, since the driver needs none
        yield [*path, field.name], message, field
        if field.type != Field.TYPE_MESSAGE or _is_map(field):
            continue
        if field.label == Field.LABEL_REPEATED:
            for index, element in enumerate(getattr(message, field.name)):
                yield from _fields(element, *path, field.name, index)
        elif message.HasField(field.name):
            yield from _fields(getattr(message, field.name), *path, field.name)


def _is_map(field):
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _is_secret(field):
    marked = any(option.name == "csi_secret" for option, _ in field.GetOptions().ListFields())
    return marked or field.name.endswith("_secrets")  # CSI 0.3 has no mark


def _follow(message, steps):
    for step in steps:
        message = message[step] if isinstance(step, int) else getattr(message, step)
    return message


def _put(value):
    def change(message, field):
        if field.label == Field.LABEL_REPEATED:
            del getattr(message, field.name)[:]
            getattr(message, field.name).append(value)
        else:
            setattr(message, field.name, value)

    return change


def _clear(message, field):
    message.ClearField(field.name)


def _put_entry(key, value):
    def change(message, field):
        getattr(message, field.name)[key] = value

    return change


def _add_empty(message, field):
    if field.label == Field.LABEL_REPEATED:
        getattr(message, field.name).add()
    else:
        message.ClearField(field.name)
        getattr(message, field.name).SetInParent()


def _changes(field, message):
    if _is_map(field):
        yield "unknown", _put_entry("no-such-key", "x")
        yield "too-long", _put_entry("no-such-key", "x" * (MAP_BYTES + 1))
    elif field.type == Field.TYPE_MESSAGE:
        yield "absent", _clear
        yield "empty", _add_empty
    elif field.type == Field.TYPE_ENUM:
        yield "absent", _clear
        yield "unknown", _put(77)
    elif field.type in NUMBERS:
        if field.type in (Field.TYPE_INT32, Field.TYPE_INT64):
            yield "negative", _put(-1)
        yield "huge", _put((1 << 31) - 1 if field.type == Field.TYPE_INT32 else (1 << 63) - 1)
    elif field.type == Field.TYPE_STRING:
        yield "absent", _clear
        yield from _bad_strings(field)


def _bad_strings(field):
    is_path = field.name.endswith("_path")
    most = PATH_BYTES if is_path else MAP_BYTES if field.name == "mount_flags" else ID_BYTES
    yield "too-long", _put("/" * is_path + "x" * (most + 1))
    yield "control-character", _put("/tmp/a\nb" if is_path else "a\nb")
    yield "path-trick", _put("/tmp/../etc/lunkeeper" if is_path else "../../etc/passwd")
    yield "unknown", _put("/nowhere/at-all" if is_path else "nothing-of-this-name")
    if is_path:
        yield "relative", _put("tmp/lunkeeper")

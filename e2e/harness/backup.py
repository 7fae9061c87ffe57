"""What a backup program does with CSI's SnapshotMetadata service: an image that follows a volume."""

from pathlib import Path
from typing import Any

from harness.csi import Client

Ranges = list[tuple[int, int]]  # offset and length


class Image:
    """A copy of a volume, in memory, outside the pool."""

    def __init__(self) -> None:
        self.content = bytearray()
        self.copied = 0  # bytes, by the last call of copy

    def copy(self, ranges: Ranges, snapshot: Path, size: int) -> None:
        """These ranges of a snapshot's file, and nothing else."""
        self.content.extend(bytes(size - len(self.content)))
        self.copied = sum(length for _, length in ranges)
        with open(snapshot, "rb") as source:
            for offset, length in ranges:
                source.seek(offset)
                self.content[offset : offset + length] = source.read(length)


def ranges_of(messages: list[Any]) -> Ranges:
    return [(block.byte_offset, block.size_bytes) for message in messages for block in message.block_metadata]


def allocated(client: Client, snapshot: str, offset: int = 0) -> Ranges:
    return ranges_of(client.GetMetadataAllocated(snapshot_id=snapshot, starting_offset=offset))


def changed(client: Client, base: str, target: str, offset: int = 0, max_results: int = 0) -> Ranges:
    return ranges_of(
        client.GetMetadataDelta(
            base_snapshot_id=base,
            target_snapshot_id=target,
            starting_offset=offset,
            max_results=max_results,
        )
    )

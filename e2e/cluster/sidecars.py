"""The CSI sidecars of a cluster: built here, from the sources of the versions that the chart names."""

import yaml  # type: ignore[import]  # Debian has no types of it

from cluster import programs
from harness.places import ROOT

MODULES = {
    "csi-provisioner": "external-provisioner/v6",
    "csi-resizer": "external-resizer/v2",
    "csi-snapshot-metadata": "external-snapshot-metadata",
    "csi-snapshotter": "external-snapshotter/v8",
}


def charted() -> dict[str, str]:
    """The chart's images of others: {program: whole name}."""
    settings = yaml.safe_load((ROOT / "charts/lunkeeper/values.yaml").read_text())["sidecars"]
    named = [each["image"] for each in settings.values() if isinstance(each, dict) and "image" in each]
    return {image.split("/")[-1].split(":")[0]: image for image in named}


def names(program: str) -> list[str]:
    """Of its image: the tag of the version that is built, and with the chart's digest if that is of this tag.

    What is built here has another digest. containerd takes the name for what it is called, so pods find the
    image by the chart's name, as if it had been pulled.
    """
    version = programs.versions()[f"github.com/kubernetes-csi/{MODULES[program]}"]
    tagged = f"registry.k8s.io/sig-storage/{program}:{version}"
    charted_name = charted()[program]
    return [tagged, charted_name] if charted_name.startswith(f"{tagged}@") else [tagged]

"""The Helm chart without a cluster: by which names its pods pull images."""

import re

import pytest

from chart.charts import LOCAL_ARRAY, ONE_ARRAY, every_pod, pods, render
from cluster.sidecars import charted

ALL_SIDECARS = {**ONE_ARRAY, "snapshots": {"enabled": True, "metadata": {"enabled": True}}}
DIGEST = f"sha256:{'a' * 64}"
WITHOUT_DIGEST = {"csi-snapshot-metadata"}  # no list that we can read has v1.1.0


def used_images(things):
    """Of the sidecars: {program: whole name}."""
    _, *others = pods(things)["storage-lunkeeper-controller"]["containers"]
    return {re.split("[:@]", each["image"].split("/")[-1])[0]: each["image"] for each in others}


def test_images_of_others_are_named_by_their_digest(values):
    used = used_images(render(values(ALL_SIDECARS)))
    assert len(used) == 4
    assert {name for name, image in used.items() if "@" not in image} == WITHOUT_DIGEST
    whole = r"registry\.k8s\.io/sig-storage/%s:v[0-9.]+@sha256:[0-9a-f]{64}"
    for name in used.keys() - WITHOUT_DIGEST:
        assert re.fullmatch(whole % name, used[name])


@pytest.mark.parametrize(
    "image",
    [
        "registry.k8s.io/sig-storage/csi-resizer:v9.9.9",
        "own.example:5000/csi-resizer:v2.2.0",
        f"csi-resizer:v2.2.0@{DIGEST}",
        f"csi-resizer@{DIGEST}",
    ],
    ids=["another tag", "another registry", "another digest", "no tag"],
)
def test_an_image_of_ones_own_is_taken_as_one_names_it(values, image):
    """With the digest of ours it would be ours, whatever its tag says."""
    content = {**ALL_SIDECARS, "sidecars": {"resizer": {"image": image}}}
    assert used_images(render(values(content)))["csi-resizer"] == image


def test_images_may_be_named_by_their_tags_alone(values):
    content = {**ALL_SIDECARS, "sidecars": {"byDigest": False}}
    used = used_images(render(values(content)))
    assert {name: image.partition("@")[0] for name, image in charted().items()} == used
    content["sidecars"]["resizer"] = {"image": f"own.example:5000/csi-resizer@{DIGEST}"}  # it has no tag
    assert used_images(render(values(content)))["csi-resizer"] == content["sidecars"]["resizer"]["image"]


def test_the_image_may_be_named_by_its_digest(values):
    specs = pods(render(values({**ONE_ARRAY, "image": {"tag": "1", "digest": DIGEST}})))
    image = f"ghcr.io/lunkeeper/lunkeeper:1@{DIGEST}"
    assert {spec["containers"][0]["image"] for spec in specs.values()} == {image}


@pytest.mark.parametrize(
    "registry",
    ["mirror.example:5000", "mirror.example/csi", "localhost"],
    ids=["port", "folder", "localhost"],
)
def test_all_images_may_come_from_one_mirror(values, registry):
    content = {
        **LOCAL_ARRAY,
        "global": {"imageRegistry": registry, "of": "another chart"},
        "image": {"repository": "lunkeeper/own", "tag": "1"},
        "snapshots": {"enabled": True, "metadata": {"enabled": True}},
    }
    things = render(values(content))
    used = {each["image"] for spec in every_pod(things).values() for each in spec["containers"]}
    mirrored = {image.replace("registry.k8s.io", registry) for image in charted().values()}
    assert len(mirrored) == 4 and used == {f"{registry}/lunkeeper/own:1", *mirrored}
    (test_pod,) = (thing for thing in things if thing["kind"] == "Pod")
    assert test_pod["spec"]["containers"][0]["image"] == f"{registry}/lunkeeper/own:1"

"""Mounts of other tests, in a mount namespace of one's own."""

import tempfile


def drop_others(keep="/"):
    """A shell command that lets go of what other tests have mounted: it was copied into this namespace, and their devices would be
    in use for as long as it lives. What `keep` lies on stays."""
    chosen = f"""index($5, "{tempfile.gettempdir()}/") == 1 && index("{keep}/", $5 "/") != 1 {{print $5}}"""
    return f"awk '{chosen}' /proc/self/mountinfo | tac | xargs --no-run-if-empty --max-args=1 umount --lazy"

"""What a cluster that is well says of itself in a day, as series of promtool."""

DAY = 86400
# A day of two controllers and three nodes, a sample each 15 seconds. In promtool's notation: 0+15x9 begins
# with 0 and adds 15 nine times; _ is a sample that is missing.
ALWAYS = 5760
CONTROLLERS, FILES = ("controller-1", "controller-2"), ("arrays_file", "failover_settings")
NODES = ("node-1", "node-2", "node-3")


def series(metric, pod, **labels):
    told = {"namespace": "lunkeeper", "pod": pod, **labels}
    return f"{metric}{{{', '.join(f'{name}={value!r}' for name, value in told.items())}}}"


def call(pod, method, code):
    return series("lunkeeper_rpc_duration_seconds_count", pod, method=method, code=code)


TAINTED = "lunkeeper_failover_plugin_tainted_nodes"
WELL = {
    **{
        series("lunkeeper_certificate_end_seconds", pod, file=f"/etc/{pod}.crt"): f"{30 * DAY}x{ALWAYS}"
        for pod in CONTROLLERS + NODES
    },
    # A file that was there once.
    series("lunkeeper_certificate_end_seconds", "controller-1", file="/etc/old.crt"): f"0x{ALWAYS}",
    # It grows and falls again with each heartbeat, and once the array was restarted. One array is used by a
    # single node.
    **{
        series(
            "lunkeeper_node_storage_heartbeat_age_seconds", pod, array=array
        ): f"0.4x100 14 29 0.2x{ALWAYS - 103}"
        for pod, array in (*((pod, "rack1") for pod in NODES), ("node-3", "rack2"))
    },
    # A volume that is attached only now and then, and one that loses its target for a moment.
    series(
        "lunkeeper_volume_health", "node-1", volume="v1", state="failed"
    ): f"0x100 stale _x49 0x{ALWAYS - 150}",
    series(
        "lunkeeper_volume_health", "node-1", volume="v1", state="reconnecting"
    ): f"0x100 1 0x{ALWAYS - 101}",
    # A node that was fenced: its device has failed until kubelet unmounts it.
    series("lunkeeper_volume_health", "node-2", volume="v2", state="failed"): "0x100 1x6 stale",
    **{series("lunkeeper_node_datapath_answers", pod): f"1x50 0x2 1x{ALWAYS - 52}" for pod in NODES},
    **{series("lunkeeper_registered", pod): f"0x4 1x{ALWAYS - 5}" for pod in NODES},
    **{series(f"lunkeeper_{file}_good", pod): f"1x{ALWAYS}" for pod in CONTROLLERS for file in FILES},
    **{call(pod, "csi.v1.Node/NodeUnstageVolume", "OK"): f"0+1x{ALWAYS}" for pod in NODES},
    **{call(pod, "csi.v1.Node/NodeStageVolume", "DEADLINE_EXCEEDED"): f"0+1x{ALWAYS}" for pod in NODES},
    **{
        f"lunkeeper_pool_{what}_bytes{{array='local', pod='array-local'}}": f"{bytes}x{ALWAYS}"
        for what, bytes in (("size", 1000), ("used", 800), ("promised", 3000))
    },
    # It died once, and each release takes a while.
    "lunkeeper_tgtd_well{array='local', pod='array-local', tgtd='0'}": f"1x200 0 1x{ALWAYS - 202}",
    "lunkeeper_tgtd_well{array='local', pod='array-local', tgtd='1'}": f"1x{ALWAYS}",
    # A node that starts with many volumes, for a while.
    "lunkeeper_tgtd_grants{array='local', pod='array-local', tgtd='0'}": f"300x100 500x30 300x{ALWAYS - 132}",
    "lunkeeper_tgtd_grants{array='local', pod='array-local', tgtd='1'}": f"300x{ALWAYS}",
    "lunkeeper_array_grants{array='local', pod='array-local'}": f"600x100 800x30 600x{ALWAYS - 132}",
    "lunkeeper_tgtd_deaths_total{array='local', pod='array-local'}": f"0x200 1x{ALWAYS - 201}",
    "lunkeeper_array_has_standby{array='local', pod='array-local'}": f"1x200 0x16 1x{ALWAYS - 216}",
    "lunkeeper_array_oldest_release_seconds{array='local', pod='array-local'}": f"0x9 15x4 0x{ALWAYS - 15}",
    # The leader changes.
    series("lunkeeper_failover_leading", "controller-1"): f"1x200 0x{ALWAYS - 201}",
    series("lunkeeper_failover_leading", "controller-2"): f"0x202 1x{ALWAYS - 203}",
    **{series("lunkeeper_failover_synced", pod): f"1x{ALWAYS}" for pod in CONTROLLERS},
    # The leader's agent restarts; the other one has no way to an array, and does not lead.
    series("lunkeeper_failover_unseen_arrays", "controller-1"): f"0x50 1 0x148 1x{ALWAYS - 199}",
    series("lunkeeper_failover_unseen_arrays", "controller-2"): f"0x{ALWAYS}",
    # One of its array's tgtds is killed, and started again.
    series("lunkeeper_failover_unseen_grants", "controller-1"): f"0x60 40 0x{ALWAYS - 62}",
    series("lunkeeper_failover_unseen_grants", "controller-2"): f"0x{ALWAYS}",
    **{series("lunkeeper_failover_paused", pod): f"0x100 1x10 0x{ALWAYS - 112}" for pod in CONTROLLERS},
    **{series("lunkeeper_failover_held_back_nodes", pod): f"0x50 1 0x{ALWAYS - 52}" for pod in CONTROLLERS},
    # A node joins, and its plugin takes some minutes.
    **{series(TAINTED, pod): f"0x50 1x30 0x{ALWAYS - 82}" for pod in CONTROLLERS},
    **{
        series("lunkeeper_failover_nodefences", pod, phase=phase): f"0x{ALWAYS}"
        for pod in CONTROLLERS
        for phase in ("Fencing", "AwaitingNode")
    },
    **{series("lunkeeper_failover_volumes_held_back", pod): f"0x{ALWAYS}" for pod in CONTROLLERS},
    # Two of them long ago.
    **{
        series("lunkeeper_failover_fence_failures_total", pod): f"0x50 1 2x{ALWAYS - 52}"
        for pod in CONTROLLERS
    },
}

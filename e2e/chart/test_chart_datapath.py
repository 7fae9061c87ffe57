"""How the data path's DaemonSet is replaced."""

from chart.charts import LOCAL_ARRAY, ONE_ARRAY, find, pods, render


def test_every_part_logs_as_the_values_say(values):
    things = render(values({**LOCAL_ARRAY, "logs": {"level": "warn", "format": "text"}}))
    for name, spec in pods(things).items():
        assert {"--log-level=warn", "--log-format=text"} <= set(spec["containers"][0]["args"]), name


def test_the_data_path_rolls_with_both_pods_there_unless_the_values_say_otherwise(values):
    def data_path(**settings):
        things = render(values({**ONE_ARRAY, "datapath": settings}))
        return find(things, "DaemonSet", "storage-lunkeeper-datapath")["spec"]

    rolls = data_path()
    assert rolls["updateStrategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
    }
    assert data_path(updateStrategy="OnDelete")["updateStrategy"] == {"type": "OnDelete"}
    # A successor is ready when it serves itself, which the shared socket would not tell.
    pod = rolls["template"]["spec"]
    (container,) = pod["containers"]
    ready_file = next(word for word in container["args"] if word.startswith("--ready-file="))
    assert "--take-over" in container["args"]
    assert container["readinessProbe"]["exec"]["command"][-1] == ready_file
    assert pod["terminationGracePeriodSeconds"] == 3600

"""An API server that says which kinds and version it has, and lists the DaemonSets that it was given: enough
for helm to render as an installation does.
"""

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CLUSTER_WIDE = ("ClusterRole", "ClusterRoleBinding", "CSIDriver", "StorageClass")


def resource_of(kind):
    return f"{kind.lower()}es" if kind.endswith("s") else kind.lower().replace("policy", "policie") + "s"


def discovery(things, groups):
    """{path: answer}, for the kinds of these objects, and for groups of others ("apps/v1")."""
    kinds = {version: ["Thing"] for version in groups}
    for thing in things:
        known = kinds.setdefault(thing["apiVersion"], [])
        if thing["kind"] not in known:
            known.append(thing["kind"])
    versions = [{"groupVersion": each, "version": each.split("/")[1]} for each in kinds if "/" in each]
    answers = {
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": [
                {"name": each["groupVersion"].split("/")[0], "versions": [each], "preferredVersion": each}
                for each in versions
            ],
        },
    }
    for version, names in kinds.items():
        answers[f"/apis/{version}" if "/" in version else f"/api/{version}"] = {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": version,
            "resources": [
                {
                    "name": resource_of(kind),
                    "kind": kind,
                    "namespaced": kind not in CLUSTER_WIDE,
                    "verbs": ["get", "list", "create", "patch", "delete"],
                }
                for kind in names
            ],
        }
    return answers


@contextlib.contextmanager
def api_server(things, version="v1.36.0", groups=(), daemonsets=(), namespace="lunkeeper"):
    """Yields helm's options to use it."""
    answers = discovery(things, groups)
    answers["/version"] = {"major": "1", "minor": "36", "gitVersion": version}
    answers[f"/apis/apps/v1/namespaces/{namespace}/daemonsets"] = {
        "kind": "DaemonSetList",
        "apiVersion": "apps/v1",
        "items": list(daemonsets),
    }
    missing = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            answer = answers.get(self.path.split("?")[0], missing)
            body = json.dumps(answer).encode()
            self.send_response(404 if answer is missing else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"--kube-apiserver=http://127.0.0.1:{server.server_port}", "--dry-run=server"
    finally:
        server.shutdown()
        server.server_close()

#pragma once
// `lunkeeper import`: for a cluster that was made again (its etcd lost, the arrays and their catalogues not).
// Lists the volumes and snapshots of this cluster's name that no object refers to, or prints the objects for
// `kubectl apply`. It applies nothing: a volume in the wrong claim's hands is somebody's data in the wrong
// pod, and only a person knows which is whose. May be repeated: what was applied is not printed again. The
// exit code is 1 if an array does not answer, since its volumes are missing then. One thread.

#include "plugin/admin_client.h"

namespace lunkeeper {

void AddImportCommand(CLI::App* app, int* exit_code, const MakeClient& cluster);

}  // namespace lunkeeper

#pragma once
// `lunkeeper pki renew`: makes and renews the certificates of the coordinator, of arrays in the cluster and
// of the controllers, in the cluster that this pod is in. The chart runs it as a Job at the install and each
// day as a CronJob.

#include "plugin/admin_client.h"

namespace CLI {
class App;
}

namespace lunkeeper {

// Adds the command; if it was given it runs while the command line is parsed, and leaves its exit code here.
void AddPkiCommand(CLI::App* app, int* exit_code, const MakeClient& cluster = InClusterClient);

}  // namespace lunkeeper

#pragma once
// `lunkeeper support-bundle`: what somebody far away needs to help, as one JSON document on standard output:
// what the server and its arrays say, what doctor finds, and the cluster's objects about it. It holds no
// secret: of an object only named fields are taken, and whatever looks like a secret all the same is left
// out. Changes nothing. One thread.

#include "fencing/kube/json.h"
#include "plugin/admin_client.h"

namespace lunkeeper {

// Replaces each text that is, by its name or its looks, a password, a key or a token. A pure function.
void LeaveOutSecrets(kube::Json& json);

void AddSupportBundleCommand(CLI::App* app, int* exit_code, const MakeClient& cluster);

}  // namespace lunkeeper

#pragma once
// Tells the store which of its clients have ended, by which tgtd had an image open while its grant goes on
// (gateway_clients.h). Only what is certain: a client that lives and is shut out costs its node the volume.
// Whose client is whose, nobody knows of LUNs that an earlier agent has opened: all of those stay until the
// last tgtd with the image ends, or the volume's last grant.
//
// They ask the catalogue, and nobody else.

#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "devices/array/tgt/catalogue.h"
#include "devices/array/tgt/image_store.h"

namespace lunkeeper {

// No tgtd of this number runs, and none is started meanwhile. What it was just opening it is not any more.
void EndClientsOfTgtd(Catalogue& catalogue, const ImageStore& images, int tgtd);
// tgtd has closed the image of this grant. The caller is inside the volume's gate.
void EndClientsOfClosed(Catalogue& catalogue, const ImageStore& images, const GrantRow& grant);

// Which client is which LUN's, of LUNs that this process had opened. So a shared volume that
// moves from node to node, and is never without a grant, gains no client with each move. Forgotten with the
// process. Thread-safe.
class LunClients {
 public:
  // The LUN of this grant has just been opened by this client, and the one before it is closed.
  void NoteOpened(const ImageStore& images, const GrantRow& grant, const std::string& client)
      ABSL_LOCKS_EXCLUDED(mu_);
  // tgtd has closed the LUN of this grant. False: nobody knows whose client has ended.
  bool EndClient(const ImageStore& images, const GrantRow& grant) ABSL_LOCKS_EXCLUDED(mu_);
  bool Knows(const GrantRow& grant) const ABSL_LOCKS_EXCLUDED(mu_);
  void ForgetLun(const GrantRow& grant) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  mutable absl::Mutex mu_;
  std::map<Generation, std::string> clients_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lunkeeper

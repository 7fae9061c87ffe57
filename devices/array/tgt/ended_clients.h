#pragma once
// Tells the store which of its clients have ended, by which tgtd had an image open while its grant goes on
// (gateway_clients.h). Only what is certain: a client that lives and is shut out costs its node the volume.
// Where nobody knows whose client is whose, all of them stay until the last tgtd with the image ends, or the
// volume's last grant.
//
// They ask the catalogue, and nobody else.

#include <cstddef>
#include <map>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "devices/array/tgt/catalogue.h"
#include "devices/array/tgt/image_store.h"

namespace lunkeeper {

// No tgtd of this number runs, and none is started meanwhile.
void EndClientsOfTgtd(Catalogue& catalogue, const ImageStore& images, int tgtd);
// tgtd has closed the image of this grant. The caller is inside the volume's gate.
void EndClientsOfClosed(Catalogue& catalogue, const ImageStore& images, const GrantRow& grant);

// Which client is which LUN's, where that is certain. So a shared volume that moves from node to node, and is
// never without a grant, gains no client with each move. Forgotten with the process. Thread-safe.
class LunClients {
 public:
  // The LUN of this grant has just been opened. `known`: the image's clients that were registered before
  // that; `alive`: the ones that have it open after that; `luns`: as many may be open.
  void NoteOpened(const ImageStore& images, const GrantRow& grant, const std::set<std::string>& known,
                  const std::set<std::string>& alive, size_t luns) ABSL_LOCKS_EXCLUDED(mu_);
  // tgtd has closed the LUN of this grant. False: nobody knows whose client has ended.
  bool EndClient(const ImageStore& images, const GrantRow& grant) ABSL_LOCKS_EXCLUDED(mu_);
  bool Knows(const GrantRow& grant) const ABSL_LOCKS_EXCLUDED(mu_);
  void ForgetLun(const GrantRow& grant) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  mutable absl::Mutex mu_;
  std::map<Generation, std::string> clients_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lunkeeper

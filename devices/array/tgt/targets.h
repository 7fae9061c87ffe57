#pragma once
// A grant as a target of tgtd: made, taken down with proof, restored after a restart.
//
// A target's name ends in its grant's generation and is never used again, and its number (target_number.h)
// not for a very long time: a login that was half done when its target went away ends nowhere. Every step may
// be repeated, from any line on; the last step of opening is the one that lets the initiator in, so a target
// that is open is whole. Thread-safe; the caller keeps calls about one volume apart (VolumeGates).

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "devices/array/tgt/catalogue.h"
#include "devices/array/tgt/empty_targets.h"
#include "devices/array/tgt/image_openings.h"
#include "devices/array/tgt/image_store.h"
#include "devices/array/tgt/session_cutter.h"
#include "devices/array/tgt/shown_cache_ids.h"
#include "devices/array/tgt/target_accounts.h"
#include "devices/array/tgt/tgt_client.h"

namespace lunkeeper {

struct TargetTableOptions {
  std::string array;
  std::function<std::vector<std::string>()> portals;  // the portals that are open; one at least
  std::vector<std::string> peer_portals = {};         // where a volume's target is when another host has it
  std::string cache_id;                               // the LUN's product id; cache_id.h
  bool images_may_be_silent = false;                  // ImageStore::may_be_silent_alone
  std::string opening_mark = "";                      // of the ImageOpenings
  absl::Duration accounts_kept_for = absl::Hours(1);  // of machines without a target
};

// What is asked around the opening of an image, where the store's clients are registered: before tgtd opens
// it, having closed what it had open of this grant; and after that, before anybody may log in.
struct AroundOpening {
  std::function<absl::Status()> opening = {}, opened = {};
};

// By which the targets of a node's grants prove themselves to it; `key` is the catalogue's.
std::string MakeTargetSecret(const std::string& key, const ClusterId& cluster, const NodeId& node);

class TargetTable {
 public:
  TargetTable(const TgtClient* tgt, TargetTableOptions options)
      : tgt_(tgt),
        options_(std::move(options)),
        sessions_(tgt, options_.portals),
        openings_(options_.opening_mark),
        accounts_(tgt, options_.accounts_kept_for),
        empty_(tgt, &sessions_),
        cache_ids_(tgt, options_.cache_id) {}

  // How the node reaches it at this host.
  Connection ConnectionOf(const GrantRow& grant) const;
  // And at the peers. Not for heartbeats, which are files of one host: a peer's tgtd whose agent is dead
  // would take them, and nobody would read them.
  Connection ConnectionWithPeersOf(const GrantRow& grant) const;
  absl::Status OpenTarget(const GrantRow& grant, const Volume& volume, const LunBacking& backing,
                          const AroundOpening& around = {}) ABSL_LOCKS_EXCLUDED(mu_);
  // The last of OpenTarget; and for one that was open, whose LUN CloseTarget has left as it was.
  absl::Status LetIn(const GrantRow& grant) ABSL_LOCKS_EXCLUDED(mu_);
  bool IsOpen(const GrantRow& grant) const ABSL_LOCKS_EXCLUDED(mu_);
  // Makes a target that cannot be opened now exist, offline: tgtd then answers "try again" (0300), and not
  // "target not found", by which an initiator gives its device up for good. OpenTarget ends it.
  absl::Status HoldTarget(const GrantRow& grant);
  // Lets the next Open look for itself.
  void ForgetOpen(const GrantRow& grant) ABSL_LOCKS_EXCLUDED(mu_);
  // Closes the target to logins and ends its sessions. True once every command of every session is over and
  // the target is deleted, or only empty; false while something is still running: call again.
  absl::StatusOr<bool> DrainTarget(const GrantRow& grant) ABSL_LOCKS_EXCLUDED(mu_);
  // Ends the sessions of a target, and closes its image once no command of them runs: true then; false: call
  // again. The target stays, offline: a login gets "try again". OpenTarget undoes it, also in the life of a
  // later agent. For a tgtd that is about to end, with its portals closed; and to have the image opened anew,
  // as it is then.
  absl::StatusOr<bool> CloseTarget(const GrantRow& grant) ABSL_LOCKS_EXCLUDED(mu_);
  // ResumeTarget of one that an agent before this one has opened, by that image.
  absl::Status ResumeOpen(const GrantRow& grant, const LunBacking& backing) ABSL_LOCKS_EXCLUDED(mu_);
  EmptyTargets& empty_targets() { return empty_; }
  ShownCacheIds& cache_ids() { return cache_ids_; }
  TargetAccounts& accounts() { return accounts_; }
  // Of all generations that had an account before these grants were read: the others' are old.
  void SetOldAccounts(const std::vector<GrantRow>& grants, std::set<Generation> generations);
  // Cuts the sessions, which find the target not ready (try again), not gone, until EndPause. True once no
  // command is running, or only the LUN can tell (session_cutter.h); false while one is: call again.
  absl::StatusOr<bool> PauseTarget(const GrantRow& grant);
  absl::Status EndPause(const GrantRow& grant);
  // Undoes a pause that a crash has left; no more than that, for there may be good sessions.
  absl::Status ResumeTarget(const GrantRow& grant) const;
  // What tgtd has of ours; remembers which are open already and forgets all others. Also closes discovery,
  // and makes the target that nobody may log in to, and which is not in the answer: a tgtd without any target
  // closes connections without a word, and an initiator whose own target is gone would go on trying.
  absl::StatusOr<std::vector<TgtTarget>> ReadFromTgtd() ABSL_LOCKS_EXCLUDED(mu_);
  // Takes over what an earlier agent has left to be deleted: targets of grants that are gone, without a LUN.
  // FAILED_PRECONDITION: one of these may serve something, and none of them is in the catalogue.
  absl::Status AdoptEmptyTargets(const std::map<int32_t, TgtTarget>& unknown, Catalogue& catalogue);
  // Those of this table.
  ImageOpenings& openings() { return openings_; }

 private:
  // The generation of a target of this array that has no LUN, and lets nobody in; nullopt for any other one.
  std::optional<Generation> GenerationOfEmpty(const TgtTarget& target) const;
  static ChapCredentials TargetAccountOf(const GrantRow& grant);
  absl::Status DeleteDrained(int32_t target, SessionsLeft sessions);
  absl::Status CloseDiscovery() const;
  absl::Status AllowDigests(int32_t target, Digests digests) const;
  // `open`: a call by which tgtd opens the image of the grant.
  absl::Status OpenImage(const GrantRow& grant, const LunBacking& backing,
                         absl::FunctionRef<absl::Status()> open);
  // `close`: one by which tgtd closes it.
  absl::Status CloseImage(const GrantRow& grant, absl::FunctionRef<absl::Status()> close);
  absl::Status MakeLun(const GrantRow& grant, const Volume& volume, const LunBacking& backing);
  absl::Status CloseFound(const GrantRow& grant) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status DeleteLun(const GrantRow& grant) ABSL_LOCKS_EXCLUDED(mu_);

  const TgtClient* const tgt_;
  const TargetTableOptions options_;
  SessionCutter sessions_;
  ImageOpenings openings_;
  TargetAccounts accounts_;
  EmptyTargets empty_;
  ShownCacheIds cache_ids_;
  mutable absl::Mutex mu_;
  absl::flat_hash_set<int32_t> open_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lunkeeper

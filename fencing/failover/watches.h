#pragma once
// Watches every kind of object that failover needs, and delivers all changes on one thread: the one that runs
// the posted jobs. One thread makes and destroys it; the destructor joins the watches' own threads. Nothing
// fails for good.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fencing/core/action.h"
#include "fencing/core/event.h"
#include "fencing/failover/clock.h"
#include "fencing/failover/loop.h"
#include "fencing/failover/object_cache.h"
#include "fencing/failover/record.h"
#include "fencing/kube/kube_client.h"

namespace lunkeeper::fencing {

struct WatchHandlers {
  std::function<void(std::function<void()>, Wake)> post;
  ObjectCache& objects;
  std::string own_namespace;  // where the driver's own pods are
  // Null: it is gone.
  std::function<void(const std::string& name, const RecordFacts*)> on_record;
  // Its lease was renewed.
  std::function<void(const std::string& node, const std::string& renewal)> on_kubelet;
  std::function<void()> on_synced;  // everything is listed, and every watch stands
};

class Watches {
 public:
  Watches(kube::KubeClient& client, WatchHandlers handlers, Executor& executor);

  // The kinds whose watch is down. For the thread that runs the posted jobs.
  const std::set<std::string>& missing() const { return missing_; }
  // For how long no watch has been down. For the same thread.
  Span InStepFor() const { return missing_.empty() ? NowOn(executor_) - in_step_since_ : Span(); }
  // The outcome of a write. When writes of an object conflict with what is there, or find nothing, for some
  // seconds in which the watch brings nothing new of it, its kind is listed anew, and what there is of the
  // object is delivered again. For the same thread.
  void NoteOutcome(const Action& action, Outcome outcome);

 private:
  using ObjectName = std::pair<std::string, std::string>;  // its kind and its key
  struct Conflicts {                                       // of the writes of one object
    Instant first, last;
  };
  struct Pace {  // of the lists of one kind
    Instant next;
    Span pause;
  };

  template <class T>
  void Add(const kube::Selection& selection, std::function<std::optional<T>(const kube::Json&)> reduce,
           std::function<void(const std::string&, const std::shared_ptr<const T>&)> changed);
  void SetLive(const std::string& kind, bool live);
  std::optional<ObjectName> FindObjectOf(const Action& action) const;
  // False: it is too soon after the last time.
  bool ListAgain(const ObjectName& object, Instant now);

  kube::KubeClient& client_;
  Executor& executor_;
  const WatchHandlers handlers_;
  std::set<std::string> missing_;
  Instant in_step_since_;  // while none is missing
  std::map<ObjectName, Conflicts> conflicts_;
  std::map<std::string, Pace> paces_;  // by kind, as the next two
  std::map<std::string, std::function<void(const std::string&)>> list_again_by_, deliver_again_by_;
  std::minstd_rand random_;
  std::vector<std::shared_ptr<void>> informers_;  // last: their threads use the others
};

}  // namespace lunkeeper::fencing

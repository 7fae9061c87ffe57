// Each verb is one call over World::Call. The writes that failover acts by are reported to the checker right
// before they leave, and are where a replica may be made to crash or stall. Here are also the mistakes
// (mutants.h) of a client, or of what reads and writes by it.

#include "fencing/sim/api_client.h"

#include <stop_token>
#include <utility>

#include "fencing/failover/facts.h"
#include "fencing/failover/record.h"
#include "fencing/sim/checker.h"
#include "fencing/sim/replica.h"

namespace lunkeeper::fencing::sim {
namespace {

using kube::FieldAt;
using kube::Limits;
using kube::ObjectRef;
using kube::TextAt;

absl::Status NoAnswer() { return absl::DeadlineExceededError("the API server does not answer"); }

// Those by which failover acts; the lease has rules of its own, and the others are for people.
bool IsDeed(const ObjectRef& at) {
  for (const char* plural : {"nodes", "pods", "persistentvolumes", "nodefences"})
    if (at.resource.plural == plural) return true;
  return false;
}

class ApiWatch final : public kube::WatchStream {
 public:
  using Distort = std::function<bool(Json&)>;
  ApiWatch(Process& process, std::shared_ptr<Feed> feed, absl::Duration deadline, std::stop_token stop,
           Distort distort)
      : process_(process),
        feed_(std::move(feed)),
        deadline_(deadline),
        stop_(std::move(stop)),
        distort_(std::move(distort)) {}
  ~ApiWatch() override { feed_->end = absl::CancelledError("nobody reads it"); }

  absl::StatusOr<std::optional<kube::Change>> Next() override {
    for (;;) {
      while (feed_->changes.empty()) {
        if (process_.dead() || stop_.stop_requested()) return absl::CancelledError("the process ends");
        if (feed_->end) return OfEnd(*feed_->end);
        if (process_.SteadyNow() >= deadline_) return NoAnswer();
        Process::Wait wait(process_);
        feed_->arrived = wait.wake();
        const std::stop_callback stopped(stop_, wait.wake());
        wait.AwaitFor(process_.InWorld(deadline_ - process_.SteadyNow()));
        feed_->arrived = nullptr;
      }
      kube::Change change = std::move(feed_->changes.front());
      feed_->changes.pop_front();
      if (distort_(change.object)) return std::make_optional(std::move(change));
    }
  }

 private:
  static absl::StatusOr<std::optional<kube::Change>> OfEnd(const absl::Status& status) {
    if (!status.ok()) return status;
    return std::nullopt;
  }

  Process& process_;
  const std::shared_ptr<Feed> feed_;
  const absl::Duration deadline_;
  const std::stop_token stop_;
  const Distort distort_;
};

class ApiClient final : public kube::KubeClient {
 public:
  ApiClient(Replica& replica, Process& process)
      : replica_(replica), process_(process), world_(process.world()) {}

  absl::StatusOr<Json> Get(const ObjectRef& object, const Limits& limits) override {
    return CallApi<Json>(limits, [&api = *world_.api, object] { return api.Get(object); });
  }

  absl::StatusOr<kube::PageEnd> ListPage(const kube::Selection& selection, const kube::PageRequest& page,
                                         const std::function<void(Json object)>& each,
                                         const Limits& limits) override {
    struct Page {
      std::vector<Json> objects;
      std::string version;
    };
    const bool only_version = page.most == 1;
    auto listed =
        CallApi<Page>(limits, [&api = *world_.api, selection, only_version]() -> absl::StatusOr<Page> {
          return Page{only_version ? std::vector<Json>() : api.List(selection), api.version()};
        });
    if (!listed.ok()) return listed.status();
    for (Json& object : listed->objects)
      if (DistortObject(selection, object)) each(std::move(object));
    return kube::PageEnd{listed->version, ""};
  }

  absl::StatusOr<std::unique_ptr<kube::WatchStream>> OpenWatch(const kube::Selection& selection,
                                                               const std::string& version, absl::Time open_by,
                                                               const Limits& limits) override {
    auto feed = std::make_shared<Feed>();
    feed->selection = selection;
    feed->reader = process_.endpoint();
    // The steady clock's, as kube::Limits has it: people may set the time of day meanwhile.
    const absl::Duration left = limits.until - process_.WallNow(), deadline = process_.SteadyNow() + left;
    const Span lasts = process_.InWorld(left);
    const bool unseen = world_.Has(Mutant::kCompactionUnseen);
    const auto opened = CallApi<bool>(
        {open_by}, [&api = *world_.api, feed, version, lasts, unseen]() -> absl::StatusOr<bool> {
          auto status = api.OpenWatch(feed, version, lasts);
          if (absl::IsOutOfRange(status) && unseen) status = api.OpenWatch(feed, api.version(), lasts);
          if (!status.ok()) return status;
          return true;
        });
    if (!opened.ok()) return opened.status();
    return std::make_unique<ApiWatch>(process_, feed, deadline, limits.stop, [this, selection](Json& object) {
      return DistortObject(selection, object);
    });
  }

  absl::StatusOr<Json> Create(const ObjectRef& at, const Json& object, const Limits& limits) override {
    if (at.resource.plural == "events") Say(object);
    if (at.resource.plural == kNodeFences.plural && !process_.dead()) {
      const NodeFence fence = ReadRecord(object).fence;
      if (fence.requested_by.empty()) world_.Check([&] { world_.checker->Decides(replica_, fence); });
    }
    if (IsDeed(at) && !Begin("create", at, TextAt(object, {"metadata", "name"}))) return NoAnswer();
    return Write(at, object, limits, [&api = *world_.api, at, object] { return api.Create(at, object); });
  }

  absl::StatusOr<Json> Patch(const ObjectRef& object, const Json& merge, const kube::Preconditions& only_if,
                             const Limits& limits) override {
    if (object.resource.plural == kube::kPods.plural) world_.checker->Orders(Uid(only_if.uid));
    if (IsDeed(object) && !Begin("patch", object, merge.dump())) return NoAnswer();
    const bool untaints = object.resource.plural == kube::kNodes.plural &&
                          TaintIn(kube::ToText(FieldAt(merge, {"spec", "taints"}))).empty();
    if (untaints && world_.Has(Mutant::kTaintForgotten)) return NoAnswer();
    return Write(object, merge, limits,
                 [&api = *world_.api, object, merge, only_if] { return api.Patch(object, merge, only_if); });
  }

  absl::Status Delete(const ObjectRef& object, const kube::Preconditions& only_if,
                      std::optional<absl::Duration> grace, const Limits& limits) override {
    if (object.resource.plural == kube::kPods.plural && grace == absl::ZeroDuration())
      world_.checker->Orders(Uid(only_if.uid));
    if (IsDeed(object) && !Begin(grace ? "delete by force" : "delete", object, "")) return NoAnswer();
    if (object.resource.plural == kNodeFences.plural && world_.Has(Mutant::kRecordNotRemoved))
      return NoAnswer();
    return CallApi<bool>(limits,
                         [&api = *world_.api, object, only_if, grace]() -> absl::StatusOr<bool> {
                           auto status = api.Delete(object, only_if, grace);
                           if (!status.ok()) return status;
                           return true;
                         })
        .status();
  }

 private:
  // One that takes longer than its caller waits has been withdrawn.
  template <class T>
  absl::StatusOr<T> CallApi(const Limits& limits, std::function<absl::StatusOr<T>()> serve, Span takes = {}) {
    const Span timeout = process_.InWorld(limits.until - process_.WallNow());
    auto answer = process_.Call<absl::StatusOr<T>>(
        world_.api->endpoint(), timeout,
        [&world = world_, serve = std::move(serve), takes, until = world_.now() + timeout](auto reply) {
          if (takes == Span()) return ServeCall<T>(world, serve, reply);
          world.After(takes, [&world, serve, until, reply] {
            if (world.now() < until) ServeCall<T>(world, serve, reply);
          });
        });
    if (!answer) return NoAnswer();
    return *std::move(answer);
  }

  template <class T>
  static void ServeCall(World& world, const std::function<absl::StatusOr<T>()>& serve,
                        const std::function<void(absl::StatusOr<T>)>& reply) {
    Api& api = *world.api;
    if (!api.up && api.refuses) return reply(absl::UnavailableError("connection refused"));
    if (!api.up) return;
    if (!world.random().Percent(api.error_percent)) return reply(serve());
    if (world.random().Percent(50)) serve().IgnoreError();  // done, but nobody says so
    reply(absl::InternalError("the API server has an error"));
  }

  // Creates or patches; whose the lease is then, the checker knows from here.
  absl::StatusOr<Json> Write(const ObjectRef& at, const Json& object, const Limits& limits,
                             std::function<absl::StatusOr<Json>()> serve) {
    const bool record = at.resource.plural == kNodeFences.plural;
    const Span takes = record ? world_.api->records_take : Span();
    if (takes > Span()) ++world_.api->records_slow;
    if (at.resource.plural != "leases") return CallApi<Json>(limits, std::move(serve), takes);
    const bool release = TextAt(object, {"spec", "holderIdentity"}).empty();
    if (release && replica_.running() && !process_.dead())
      world_.Check([&] { world_.checker->Yields(replica_); });
    // One that was killed while it stalled ends only when that is over, while its next life may lead.
    if (release && !process_.dead()) replica_.NoteRelease();
    if (release && world_.Has(Mutant::kLeaseKept)) return NoAnswer();
    auto written = CallApi<Json>(limits, [this, serve = std::move(serve), release, sent = world_.now()] {
      auto stored = serve();
      if (stored.ok() && !release && !process_.dead()) replica_.NoteRenewal(sent);
      return stored;
    });
    if (!written.ok() && world_.Has(Mutant::kStaleLeaderActs) && !process_.dead())
      return Json{{"metadata", {{"resourceVersion", "forged"}}}, {"spec", FieldAt(object, {"spec"})}};
    return written;
  }

  // False: the replica crashed instead.
  bool Begin(const char* verb, const ObjectRef& at, const std::string& what) {
    if (process_.dead()) return false;
    const std::string name = at.name.empty() ? at.resource.plural : at.resource.plural + "/" + at.name;
    if (world_.tracing()) world_.Trace(replica_.name() + ": " + verb + " " + name + " " + what);
    world_.Check([&] { world_.checker->Acts(replica_, std::string(verb) + " " + name); });
    return replica_.BeginsToAct();
  }

  void Say(const Json& event) {
    if (world_.tracing())
      world_.Trace(replica_.name() + ": " + TextAt(event, {"regarding", "name"}) + " " +
                   TextAt(event, {"reason"}) + ": " + TextAt(event, {"note"}));
  }

  // False: the object is lost.
  bool DistortObject(const kube::Selection& of, Json& object) const {
    const std::string& plural = of.resource.plural;
    if (plural == "leases" && world_.Has(Mutant::kKubeletIgnored)) return false;
    if (plural == "nodes" && !of.fields.empty() && world_.Has(Mutant::kKubeletIgnored))
      object["status"].erase("conditions");
    const bool pod = plural == "pods" && world_.Has(Mutant::kOptOutIgnored);
    const bool volume = plural == "persistentvolumes" && world_.Has(Mutant::kChargeForgotten);
    if (plural == "pods" && world_.Has(Mutant::kFinalizersHold))
      object["metadata"].erase("deletionGracePeriodSeconds");
    if (pod || volume) object["metadata"].erase("annotations");
    if (plural == "pods" && world_.Has(Mutant::kForeignIgnored)) EraseForeign(object["spec"]["volumes"]);
    return true;
  }

  static void EraseForeign(Json& volumes) {
    for (size_t i = 0; i < volumes.size(); ++i)
      if (TextAt(volumes[i], {"name"}) == "foreign") volumes.erase(i);
  }

  Replica& replica_;
  Process& process_;
  World& world_;
};

}  // namespace

std::unique_ptr<kube::KubeClient> MakeApiClient(Replica& replica, Process& process) {
  return std::make_unique<ApiClient>(replica, process);
}

}  // namespace lunkeeper::fencing::sim

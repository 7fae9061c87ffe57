#pragma once
// A whole cluster in virtual time, deterministic by its seed: agenda, network, and pointers to everything
// that lives in it. One thread. A function that was scheduled checks by itself whether it still applies.

#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <stdexcept>
#include <string>
#include <vector>

#include "fencing/core/settings.h"
#include "fencing/core/types.h"
#include "fencing/sim/mutants.h"
#include "fencing/sim/random.h"

namespace lunkeeper::fencing::sim {

class Api;
class ArrayModel;
class Checker;
class Deployment;
class Machine;
class Replica;

// A violated invariant, or liveness not reached.
class Violation : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

using Endpoint = size_t;
// A point of the simulated time. Only the checker and the faults see it: each replica has a clock of its own,
// which is an Instant.
using WorldTime = InstantOf<struct WorldClock>;

class World {
 public:
  World(uint64_t seed, Mutants mutants, bool tracing);
  ~World();

  WorldTime now() const { return now_; }
  Random& random() { return random_; }
  bool Has(Mutant mutant) const { return bugs_[static_cast<size_t>(mutant)]; }
  void After(Span delay, std::function<void()> what) { Add(delay, false, std::move(what)); }
  // Also when the world has ended: the threads of processes still have to end.
  void AfterInProcess(Span delay, std::function<void()> what) { Add(delay, true, std::move(what)); }
  // From now on nothing happens but the end of processes that were killed.
  void End();
  void RunUntil(WorldTime end);
  // For checks on the product's own threads, through which no exception may pass: RunUntil throws it soon.
  void Check(const std::function<void()>& check);
  uint64_t events() const { return events_; }

  // One way; counted, so that faults may overlap.
  void Cut(Endpoint from, Endpoint to) { ++cuts_[from][to]; }
  void Mend(Endpoint from, Endpoint to) { --cuts_[from][to]; }
  // Cuts `one` off from all endpoints, also from later ones; counted, too.
  void Isolate(Endpoint one) { ++isolated_[one]; }
  void Rejoin(Endpoint one) { --isolated_[one]; }
  // What is on one machine always reaches each other; what is cut from the machine is cut from all on it.
  bool Open(Endpoint from, Endpoint to) const {
    const Endpoint a = hosts_[from], b = hosts_[to];
    if (a == b) return true;
    return IsWhole(from, to) && (a == from || IsWhole(a, to)) && (b == to || IsWhole(from, b)) &&
           (a == from || b == to || IsWhole(a, b));
  }
  // Open paths take up to `jitter` longer, and lose so many packets of a hundred, which TCP sends again.
  void SetNetwork(Span jitter, int lost_percent) { jitter_ = jitter, lost_percent_ = lost_percent; }
  // A message whose sender gave it up is sent again, and the first one arrives all the same.
  bool IsRepeated() { return lost_percent_ > 0 && random_.Percent(lost_percent_); }
  // Delivers after a while, and not in order; through a cut it is lost, or comes late if the cut is mended
  // soon.
  void Send(Endpoint from, Endpoint to, std::function<void()> deliver);
  Endpoint AddEndpoint();
  Endpoint AddEndpointOn(Endpoint machine);  // of a pod there

  // `serve` gets a function to reply with; `done` gets the reply, or none when it took too long. A reply that
  // comes later still is given to `done` too.
  template <class Reply>
  void Call(Endpoint from, Endpoint to, Span timeout, std::function<void(std::function<void(Reply)>)> serve,
            std::function<void(const Reply*)> done) {
    auto answered = std::make_shared<bool>(false);
    Send(from, to, [this, from, to, serve = std::move(serve), answered, done] {
      serve([this, from, to, answered, done](Reply reply) {
        Send(to, from, [answered, done, reply = std::move(reply)] {
          *answered = true;
          done(&reply);
        });
      });
    });
    After(timeout, [answered, done] {
      if (!*answered) done(nullptr);
    });
  }

  // What the replicas run with. Nothing may be begun on evidence while it is paused: since when, if it is.
  Settings settings;
  void Pause(bool on);
  std::optional<WorldTime> paused_since() const { return paused_since_; }

  bool tracing() const { return tracing_; }
  void Trace(const std::string& line);
  std::string TakeTrace() { return std::move(trace_); }

  // Everything that lives here; made by Simulate.
  std::unique_ptr<Checker> checker;
  std::unique_ptr<Api> api;
  std::vector<std::unique_ptr<ArrayModel>> arrays;
  std::vector<std::unique_ptr<Machine>> machines;
  std::vector<std::unique_ptr<Replica>> replicas;  // the pods that there are; deployment.h makes them
  std::unique_ptr<Deployment> deployment;
  ArrayModel& FindArray(const ArrayId& id);

 private:
  struct Item {
    WorldTime at;
    uint64_t order;
    bool in_process;
    std::function<void()> what;
    bool operator<(const Item& other) const { return at != other.at ? at > other.at : order > other.order; }
  };

  void Add(Span delay, bool in_process, std::function<void()> what);
  bool IsWhole(Endpoint from, Endpoint to) const {
    return cuts_[from][to] == 0 && isolated_[from] == 0 && isolated_[to] == 0;
  }

  Random random_;
  const Mutants bugs_;
  const bool tracing_;
  WorldTime now_;
  bool ended_ = false;
  std::optional<Violation> violation_;
  uint64_t events_ = 0, order_ = 0;
  Span jitter_;
  int lost_percent_ = 0;
  std::priority_queue<Item> agenda_;
  std::vector<std::vector<int>> cuts_;
  std::vector<int> isolated_;
  std::vector<Endpoint> hosts_;  // of each, the machine that it is on, or itself
  std::string trace_;
  int pauses_ = 0;
  std::optional<WorldTime> paused_since_;
};

}  // namespace lunkeeper::fencing::sim

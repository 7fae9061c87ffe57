// Every call goes over World::Call, so it may be lost, come late, or be carried out without an answer. Two
// faults are built in here, as only the caller can make them: an API server that does what it is asked and
// answers with an error, and an unfence that something on its way holds back and delivers long after it was
// repeated, when its generation is no longer in force.

#include "fencing/sim/action_runner.h"

#include "fencing/sim/api.h"
#include "fencing/sim/checker.h"
#include "fencing/sim/machine.h"
#include "fencing/sim/replica.h"

namespace lunkeeper::fencing::sim {
namespace {

constexpr Span kProbe = 400_ms, kVote = 200_ms;

}  // namespace

void ActionRunner::Run(const Action& action) {
  std::visit([&](const auto& call) { Run(action.id, call); }, action.what);
}

void ActionRunner::Answer(uint64_t id, Outcome outcome, Done done) {
  done.action = id;
  done.outcome = outcome;
  replica_.Receive(std::move(done));
}

void ActionRunner::CallApi(uint64_t id, std::function<Done()> serve) {
  world_.Call<Done>(
      replica_.endpoint(), world_.api->endpoint(), kCall,
      [this, serve = std::move(serve)](auto reply) {
        auto& api = *world_.api;
        if (!api.up) return;
        if (!world_.random().Percent(api.error_percent)) return reply(serve());
        Done failed;
        failed.outcome = Outcome::kFailed;
        if (world_.random().Percent(50)) serve();  // done, but nobody says so
        reply(failed);
      },
      [this, id, life = replica_.life()](const Done* done) {
        if (life == replica_.life())
          Answer(id, done ? done->outcome : Outcome::kFailed, done ? *done : Done{});
      });
}

void ActionRunner::Run(uint64_t id, const WriteLease& call) {
  const auto sent = world_.now();
  CallApi(id, [this, call, sent, who = replica_.name()] {
    const auto written = world_.api->WriteLease(call.release ? "" : who, call.expected);
    if (written.outcome == Outcome::kOk && who == replica_.name() && !call.release)
      replica_.NoteRenewal(sent);
    Done done;
    done.outcome = written.outcome;
    done.version = written.version;
    return done;
  });
}

void ActionRunner::Run(uint64_t id, const ReadKubelet& call) {
  CallApi(id, [this, call] {
    Done done;
    done.kubelet = world_.api->ReadKubelet(NameOf(call.node));
    if (!done.kubelet) done.outcome = Outcome::kGone;
    return done;
  });
}

void ActionRunner::Run(uint64_t id, const AskReplicas& call) {
  auto votes = std::make_shared<ReplicaVotes>();
  for (auto& other : world_.replicas) {
    if (other.get() == &replica_) continue;
    world_.Call<Replica::Vote>(
        replica_.endpoint(), other->endpoint(), kVote,
        [&at = *other, node = call.node](auto reply) { at.Answer(node, reply); },
        [this, votes, name = other->name(), node = call.node,
         life = replica_.life()](const Replica::Vote* vote) {
          vote ? ++votes->answered : ++votes->silent;
          if (vote && vote->sight) votes->sights.push_back(*vote->sight);
          if (!vote || !vote->hears || node.empty()) return;
          votes->heard_by = name;
          if (life == replica_.life()) replica_.NoteYes(node);
        });
  }
  // By then each of them has answered, or has no vote.
  world_.After(kVote + 10_ms, [this, id, votes, life = replica_.life()] {
    Done done;
    done.votes = *votes;
    if (life == replica_.life()) Answer(id, Outcome::kOk, std::move(done));
  });
}

void ActionRunner::Run(uint64_t id, const PutNodeFence& call) {
  CallApi(id, [this, call] {
    const auto written = world_.api->Put(call.fence);
    Done done;
    done.outcome = written.outcome;
    done.version = written.version;
    return done;
  });
}

void ActionRunner::Run(uint64_t id, const RemoveNodeFence& call) {
  CallApi(id, [this, call] {
    Done done;
    done.outcome = world_.api->Remove(call);
    return done;
  });
}

void ActionRunner::Run(uint64_t id, const SetTaint& call) {
  CallApi(id, [this, call] {
    const auto written = world_.api->Taint(call);
    Done done;
    done.outcome = written.outcome;
    done.version = written.version;
    return done;
  });
}

void ActionRunner::Run(uint64_t id, const DeletePod& call) {
  CallApi(id, [this, call] {
    Done done;
    done.outcome = world_.api->Delete(call);
    return done;
  });
}

void ActionRunner::Run(uint64_t id, const ChargeVolume& call) {
  CallApi(id, [this, call] {
    world_.api->Charge(call.volume, call.nodes);
    return Done();
  });
}

void ActionRunner::Run(uint64_t id, const BeginTerm& call) {
  auto& array = world_.FindArray(call.array);
  world_.Call<Term>(
      replica_.endpoint(), array.endpoint(), kCall, [&array](auto reply) { array.BeginTerm(reply); },
      [this, id, life = replica_.life()](const Term* term) {
        if (life != replica_.life()) return;
        Done done;
        done.term = term ? *term : 0;
        Answer(id, term ? Outcome::kOk : Outcome::kFailed, std::move(done));
      });
}

void ActionRunner::Run(uint64_t id, const FenceNode& call) {
  auto& array = world_.FindArray(call.array);
  world_.Call<FenceAnswer>(
      replica_.endpoint(), array.endpoint(), kFenceCall,
      [&array, call](auto reply) { array.Fence(call.term, call.node, call.volumes, reply); },
      [this, id, life = replica_.life()](const FenceAnswer* answer) {
        if (life != replica_.life()) return;
        Done done;
        if (answer) done.fence = answer->fence;
        Answer(id, answer ? answer->outcome : Outcome::kFailed, std::move(done));
      });
}

void ActionRunner::Run(uint64_t id, const UnfenceNode& call) {
  auto& array = world_.FindArray(call.array);
  // Something on the way may keep a call for long, and deliver it when it has long been repeated.
  if (world_.random().Percent(40))
    world_.After(world_.random().Between(1_s, 40_s),
                 [&array, call] { array.Unfence(call.term, call.node, call.generation, [](Outcome) {}); });
  world_.Call<Outcome>(
      replica_.endpoint(), array.endpoint(), kCall,
      [&array, call](auto reply) { array.Unfence(call.term, call.node, call.generation, reply); },
      [this, id, life = replica_.life()](const Outcome* outcome) {
        if (life == replica_.life()) Answer(id, outcome ? *outcome : Outcome::kFailed);
      });
}

void ActionRunner::Run(uint64_t, const Probe& call) {
  for (auto& machine : world_.machines) {
    if (machine->name() != NameOf(call.node)) continue;
    world_.Call<bool>(
        replica_.endpoint(), machine->endpoint(), kProbe,
        [&at = *machine](auto reply) {
          if (at.AnswersProbe()) reply(true);
        },
        [this, node = call.node, to = machine->endpoint(), life = replica_.life()](const bool* answered) {
          if (life != replica_.life()) return;
          const bool cut = !world_.Open(replica_.endpoint(), to);
          replica_.Receive(ProbeAnswer{node, answered != nullptr, !answered && cut});
        });
  }
}

void ActionRunner::Run(uint64_t, const Notify& call) {
  for (auto& machine : world_.machines)
    if (machine->name() == NameOf(call.node))
      world_.Send(replica_.endpoint(), machine->endpoint(),
                  [&to = *machine, call] { to.Notice(call.array, call.fence); });
  auto& array = world_.FindArray(call.array);
  world_.Send(replica_.endpoint(), array.endpoint(), [&array, call] { array.LeaveNote(call.fence); });
}

}  // namespace lunkeeper::fencing::sim

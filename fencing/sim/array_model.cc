// Whatever has to wait for commands to end (a release, a fence, a login after another session) is a Drain:
// Settle() looks at all of them each time a command lands, and answers the ones that are over. Stopping loses
// them, as a crash of the agent would: the caller gets no answer, and asks again.

#include "fencing/sim/array_model.h"

#include <algorithm>
#include <set>

#include "devices/heartbeat/fence_notice.h"
#include "devices/heartbeat/heartbeat_block.h"
#include "fencing/sim/checker.h"

namespace lunkeeper::fencing::sim {
namespace {

constexpr int kCallsOfALook = 5;
constexpr Span kGivesUp = 2_s;     // of a mistake (mutants.h): until it forgets what is in flight
constexpr Span kHangsOn = 100_ms;  // until a command looks again whether its tgtd goes on

}  // namespace

ArrayModel::ArrayModel(World& world, ArrayId id)
    : world_(world), id_(std::move(id)), endpoint_(world.AddEndpoint()), portal_(world.AddEndpoint()) {}

bool ArrayModel::TryGrant(const Waiter& waiter) {
  const bool fenced =
      stored_.fences.contains(waiter.node) || stored_.fences.contains(MachineId(MachineOf(waiter.node)));
  if (fenced && !world_.Has(Mutant::kGrantToFencedNode)) {
    waiter.reply(0);
    return true;
  }
  const bool shared = shared_.contains(waiter.volume);
  for (const auto& [generation, grant] : stored_.grants) {
    if (grant.volume != waiter.volume || (shared && grant.node != waiter.node)) continue;
    if (grant.node != waiter.node || grant.closing) return false;
    waiter.reply(generation);
    return true;
  }
  world_.checker->Granting(id_, waiter.node, waiter.volume, shared || IsDrained(waiter.volume));
  ++stored_.last;
  if (IsUnseen(stored_.last)) ++stored_.last;  // new ones go to a tgtd that answers
  stored_.grants[stored_.last] = {waiter.volume, waiter.node};
  waiter.reply(stored_.last);
  return true;
}

void ArrayModel::Acquire(Waiter waiter) {
  if (serves() && !TryGrant(waiter)) waiters_.push_back(std::move(waiter));
}

bool ArrayModel::IsDrained(const VolumeId& volume) const {
  return std::none_of(sessions_.begin(), sessions_.end(), [&](const auto& entry) {
    return entry.second.volume == volume && entry.second.in_flight > 0;
  });
}

// At a tgtd that does not answer nothing is closed yet.
void ArrayModel::CloseGrant(Generation generation) {
  stored_.grants.at(generation).closing = true;
  if (!IsUnseen(generation)) CloseSessions(generation);
}

void ArrayModel::CloseSessions(Generation generation) {
  for (auto& [number, session] : sessions_)
    if (session.generation == generation) session.open = false;
}

void ArrayModel::Release(const VolumeId& volume, const NodeId& node, Generation generation,
                         std::function<void(bool)> reply) {
  if (!serves()) return;
  const auto found = std::ranges::find_if(stored_.grants, [&](const auto& entry) {
    return entry.second.node == node && entry.second.volume == volume &&
           (generation == kAnyGeneration || entry.first == generation);
  });
  if (found == stored_.grants.end()) return reply(true);
  generation = found->first;
  CloseGrant(generation);
  drains_.push_back(
      {[this, generation] { return !HasGrant(generation); }, [reply = std::move(reply)] { reply(true); }});
  Settle();
}

void ArrayModel::BeginTerm(std::function<void(Term)> reply) {
  if (!serves()) return;
  world_.checker->Obeys(id_, ++stored_.term);
  reply(stored_.term);
}

bool ArrayModel::FenceIsOver(const NodeId& node, const VolumeSet& volumes) const {
  return std::ranges::none_of(stored_.grants, [&](const auto& entry) {
    return volumes.contains(entry.second.volume) && IsIdFor(node, entry.second.node);
  });
}

// Of a machine: all that any node of it has. Of a node: what the fence names.
void ArrayModel::CloseFencedGrants(ArrayFence& fence) {
  for (const auto& [generation, grant] : stored_.grants) {
    if (!IsIdFor(fence.node, grant.node)) continue;
    if (IsMachineId(fence.node)) fence.volumes.insert(grant.volume);
    if (fence.volumes.contains(grant.volume)) CloseGrant(generation);
  }
}

void ArrayModel::Fence(Term term, const NodeId& node, const VolumeSet& volumes,
                       std::function<void(FenceAnswer)> reply) {
  if (!serves()) return;
  if (term < stored_.term && !world_.Has(Mutant::kNoTermCheck)) return reply({Outcome::kRefused, {}});
  world_.checker->Obeys(id_, term);
  stored_.term = std::max(stored_.term, term);
  auto& fence = stored_.fences[node];
  if (fence.generation == 0) fence = {node, ++stored_.last, {}};
  fence.volumes.insert(volumes.begin(), volumes.end());
  if (world_.Has(Mutant::kFenceKeepsGrants)) return reply({Outcome::kOk, fence});
  CloseFencedGrants(fence);
  world_.checker->FenceBegins(id_, fence);
  const auto forget_closing = [this] {
    std::erase_if(stored_.grants, [](const auto& entry) { return entry.second.closing; });
    Settle();
  };
  if (world_.Has(Mutant::kFenceWithoutDrain)) forget_closing();
  if (world_.Has(Mutant::kDrainGivesUp)) world_.After(kGivesUp, forget_closing);
  drains_.push_back({[this, node, all = fence.volumes] { return FenceIsOver(node, all); },
                     [this, fence, reply = std::move(reply)] {
                       // Lifted while it was drained, as a person may: it is in force no more.
                       const auto there = stored_.fences.find(fence.node);
                       if (there == stored_.fences.end() || there->second.generation != fence.generation)
                         return reply({Outcome::kFailed, {}});
                       world_.checker->FenceReported(id_, fence);
                       reply({Outcome::kOk, fence});
                     }});
  Settle();
}

void ArrayModel::Unfence(Term term, const NodeId& node, Generation generation,
                         std::function<void(Outcome)> reply) {
  if (!serves()) return;
  if (term < stored_.term && !world_.Has(Mutant::kNoTermCheck)) return reply(Outcome::kRefused);
  world_.checker->Obeys(id_, term);
  stored_.term = std::max(stored_.term, term);
  const auto found = stored_.fences.find(node);
  if (found == stored_.fences.end()) return reply(Outcome::kOk);
  if (found->second.generation != generation && !world_.Has(Mutant::kUnfenceAnyGeneration))
    return reply(Outcome::kConflict);
  world_.checker->Unfenced(id_, found->second, generation);
  stored_.fences.erase(found);
  reply(Outcome::kOk);
}

// Whatever waits for commands to be over goes on as far as it can.
void ArrayModel::Settle() {
  std::erase_if(stored_.grants, [&](const auto& entry) {
    return entry.second.closing && !IsUnseen(entry.first) && !InFlight(entry.second.volume, entry.first);
  });
  std::erase_if(sessions_,
                [](const auto& entry) { return !entry.second.open && entry.second.in_flight == 0; });
  auto drains = std::exchange(drains_, {});
  for (auto& drain : drains) drain.done() ? drain.reply() : drains_.push_back(std::move(drain));
  auto waiters = std::exchange(waiters_, {});
  for (auto& waiter : waiters)
    if (IsThere(waiter) && !TryGrant(waiter)) waiters_.push_back(std::move(waiter));
}

Span ArrayModel::TimeOfACall() const {
  if (look_.second == Span()) return Span();
  return world_.random().Between(look_.first, look_.second) / kCallsOfALook;
}

bool ArrayModel::IsUnseen(Generation generation) const {
  return second_ != SecondTgtd::kAnswers && generation % 2 == 1;
}

std::vector<lunkeeper::Grant> ArrayModel::Grants() const {
  std::vector<lunkeeper::Grant> grants;
  for (const auto& [generation, grant] : stored_.grants) {
    lunkeeper::Grant& each = grants.emplace_back();
    each.volume = grant.volume;
    each.node = grant.node;
    each.generation = generation;
    each.access = shared_.contains(grant.volume) ? Access::kSharedWrite : Access::kExclusive;
    each.connection.portal = id_.value() + ":3260";
  }
  return grants;
}

// As if each grant's node had one that lasts.
SeenSessions ArrayModel::Sessions() const {
  SeenSessions seen;
  UnseenGrants unseen{.why = "its second tgtd does not answer", .grants = {}};
  for (const auto& [generation, grant] : stored_.grants) {
    if (IsUnseen(generation)) {
      unseen.grants.emplace_back(grant.volume, grant.node);
    } else if (const auto commands = commands_.find(generation); commands != commands_.end()) {
      seen.sessions.push_back({.volume = grant.volume, .node = grant.node, .writes = commands->second});
    }
  }
  if (!unseen.grants.empty()) seen.unseen.push_back(std::move(unseen));
  return seen;
}

std::vector<VolumeId> ArrayModel::Wanted() const {
  std::set<VolumeId> wanted;
  for (const auto& waiter : waiters_)
    if (IsThere(waiter)) wanted.insert(waiter.volume);
  return {wanted.begin(), wanted.end()};
}

std::vector<FenceRecord> ArrayModel::ListFences() const {
  std::vector<FenceRecord> fences;
  for (const auto& [node, fence] : stored_.fences)
    fences.push_back({.node = node,
                      .generation = fence.generation,
                      .volumes = {fence.volumes.begin(), fence.volumes.end()},
                      .fenced_by = fence.manual ? std::string(kOperator) + "array" : "replica"});
  return fences;
}

std::vector<LandedHeartbeat> ArrayModel::Landed() const {
  std::vector<LandedHeartbeat> landed;
  for (const auto& [node, write] : landed_)
    landed.push_back({node, write.first, absl::Milliseconds((world_.now() - write.second).milliseconds())});
  return landed;
}

std::map<NodeId, ArrayFence> ArrayModel::Fences() const { return stored_.fences; }

void ArrayModel::FenceAsOperator(const NodeName& machine) {
  BeginTerm([](Term) {});
  const NodeId id = MachineId(machine.value());
  Fence(stored_.term, id, {}, [](const FenceAnswer&) {});
  stored_.fences[id].manual = true;
}

void ArrayModel::UnfenceAsOperator(const NodeName& machine) {
  const NodeId id = MachineId(machine.value());  // a copy: the row goes while it is used
  const auto fence = stored_.fences.find(id);
  if (!serves() || fence == stored_.fences.end()) return;
  BeginTerm([](Term) {});
  Unfence(stored_.term, id, fence->second.generation, [](Outcome) {});
}

void ArrayModel::Login(const NodeId& node, const VolumeId& volume, Generation generation,
                       std::function<void(uint64_t)> reply) {
  if (!serves()) return;
  if (Hangs(generation)) return;
  const bool allowed = std::ranges::any_of(stored_.grants, [&](const auto& entry) {
    return entry.second.volume == volume && (!entry.second.closing || IsUnseen(entry.first)) &&
           (entry.first == generation || world_.Has(Mutant::kTargetReused));
  });
  if (!allowed) return reply(0);
  // One target per grant: a login, and its reset, reaches the sessions of this grant alone.
  for (auto& [number, session] : sessions_)
    if (session.generation == generation) session.open = false;
  const auto number = ++last_session_;
  sessions_[number] = {node, volume, generation, true, 0};
  auto answer = [this, volume, generation, number, reply = std::move(reply)] {
    world_.checker->LoggedIn(volume, generation);
    reply(number);
  };
  if (world_.Has(Mutant::kReplayWithoutReset)) return answer();
  // LOGICAL UNIT RESET: answered when the commands of the sessions before are over.
  drains_.push_back({[this, generation, number] {
                       return std::none_of(sessions_.begin(), sessions_.end(), [&](const auto& entry) {
                         return entry.first < number && entry.second.generation == generation &&
                                entry.second.in_flight > 0;
                       });
                     },
                     std::move(answer)});
  Settle();
}

void ArrayModel::Submit(uint64_t number, const Write& write, std::function<void()> acknowledge) {
  const auto found = sessions_.find(number);
  if (!serves() || found == sessions_.end() || !found->second.open) return;
  ++found->second.in_flight;
  if (world_.Has(Mutant::kAckBeforeLanding)) acknowledge();
  const bool endless = endless_percent_ > 0 && world_.random().Percent(endless_percent_);
  world_.After(world_.random().Between(1_ms, slow_),
               [this, number, write, endless, life = life_, acknowledge] {
                 if (life == life_) Land(number, write, endless, acknowledge);
               });
}

void ArrayModel::Land(uint64_t number, const Write& write, bool endless,
                      const std::function<void()>& acknowledge) {
  auto& session = sessions_.at(number);
  if (Hangs(session.generation) || (endless && endless_percent_ > 0))
    return world_.After(kHangsOn, [this, number, write, endless, life = life_, acknowledge] {
      if (life == life_) Land(number, write, endless, acknowledge);
    });
  auto& block = stored_.blocks[session.volume][write.block];
  world_.checker->Landing(id_, session.node, session.volume, session.generation, write, block);
  block = write.sequence;
  ++commands_[session.generation];
  --session.in_flight;
  if (session.open) acknowledge();
  if (!session.open && session.in_flight == 0) sessions_.erase(number);
  if (!drains_.empty() || !waiters_.empty()) Settle();
}

bool ArrayModel::InFlight(const VolumeId& volume, Generation generation) const {
  return std::any_of(sessions_.begin(), sessions_.end(), [&](const auto& entry) {
    return entry.second.volume == volume && entry.second.generation == generation &&
           entry.second.in_flight > 0;
  });
}

void ArrayModel::WriteHeartbeat(const NodeId& node, const std::string& block) {
  const auto heartbeat = ReadHeartbeatBlock(block);
  if (heartbeat.ok() && heartbeat->node == node) landed_[node] = {heartbeat->sequence, world_.now()};
}

std::string ArrayModel::NoticeTo(const NodeId& node) const {
  const auto fence = stored_.fences.find(node);
  if (fence == stored_.fences.end()) return "";
  return WriteFenceNotice({.generation = fence->second.generation,
                           .volumes = {fence->second.volumes.begin(), fence->second.volumes.end()}});
}

// The agent alone (sessions survive), or the daemon with it.
void ArrayModel::Start(bool sessions_survive) {
  waiters_.clear();
  drains_.clear();
  landed_.clear();
  if (!sessions_survive) {
    sessions_.clear();
    ++life_;
  }
  if (world_.Has(Mutant::kFenceNotStored)) stored_.fences.clear();
  world_.checker->Started(*this);
  for (auto& [node, fence] : stored_.fences) CloseFencedGrants(fence);
  up_ = true;
  Settle();
}

// What was to be closed meanwhile is closed now.
void ArrayModel::set_second(SecondTgtd now) {
  second_ = now;
  for (const auto& [generation, grant] : stored_.grants)
    if (grant.closing && !IsUnseen(generation)) CloseSessions(generation);
  if (serves()) Settle();
}

void ArrayModel::RestoreCopy() {
  stored_ = copy_;
  world_.checker->Restored(*this);
  sessions_.clear();
  ++life_;
  waiters_.clear();
  drains_.clear();
  restored_ = !world_.Has(Mutant::kRestoredCopyServes);
  if (restored_) stored_.grants.clear();  // accepting it ends them: none is ever honoured again
}

void ArrayModel::AcceptRestore() {
  if (!restored_) return;
  restored_ = false;
  ++restores_;
  stored_.last += restores_ * 1000000;  // no generation of the lost time is used again
  stored_.term += restores_ * 1000000;
  Settle();
}

}  // namespace lunkeeper::fencing::sim

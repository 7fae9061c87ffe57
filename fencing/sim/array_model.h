#pragma once
// An array: what is stored survives its crashes, what is in flight does not always. Grants are locks, fences
// drain, terms rise; a crashed operation is finished at the next start. Deliberate mistakes: mutants.h.

#include <array>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "devices/array/fence_control.h"
#include "devices/array/grant_store.h"
#include "fencing/core/event.h"
#include "fencing/sim/world.h"
#include "fencing/sim/write.h"

namespace lunkeeper::fencing::sim {

struct FenceAnswer {
  Outcome outcome = Outcome::kOk;
  ArrayFence fence;
};

// The second of two tgtds, which has every other grant, and no heartbeats. Deaf: it serves nodes alone.
enum class SecondTgtd { kAnswers, kHangs, kDeaf };

class ArrayModel {
 public:
  ArrayModel(World& world, ArrayId id);

  const ArrayId& id() const { return id_; }
  Endpoint endpoint() const { return endpoint_; }  // of the agent, on the management network
  Endpoint portal() const { return portal_; }      // of the volumes and heartbeat LUNs
  bool up() const { return up_; }
  bool serves() const { return up_ && !restored_; }

  // Any number of nodes may have and write it at the same time.
  void MakeShared(const VolumeId& volume) { shared_.insert(volume); }

  // Replies may never come: the array crashed, or what is asked for does not happen.
  struct Waiter {
    VolumeId volume;
    NodeId node;
    WorldTime until;
    std::function<bool()> abandoned;
    std::function<void(Generation)> reply;  // 0: no
  };
  void Acquire(Waiter waiter);
  void Release(const VolumeId& volume, const NodeId& node, Generation generation,
               std::function<void(bool)> reply);
  void BeginTerm(std::function<void(Term)> reply);
  void Fence(Term term, const NodeId& node, const VolumeSet& volumes, std::function<void(FenceAnswer)> reply);
  void Unfence(Term term, const NodeId& node, Generation generation, std::function<void(Outcome)> reply);
  // A person at this array's own command line.
  void FenceAsOperator(const NodeName& machine);
  void UnfenceAsOperator(const NodeName& machine);
  // What failover reads of the product's Array (devices/array/array.h).
  std::vector<lunkeeper::Grant> Grants() const;
  SeenSessions Sessions() const;
  std::vector<VolumeId> Wanted() const;
  std::vector<FenceRecord> ListFences() const;
  std::vector<LandedHeartbeat> Landed() const;
  Span TimeOfACall() const;  // of those of a look
  bool HasGrant(Generation generation) const { return stored_.grants.contains(generation); }
  std::map<NodeId, ArrayFence> Fences() const;

  // The data path. Login: 0 is a refusal. It is answered when the old session's commands are over.
  void Login(const NodeId& node, const VolumeId& volume, Generation generation,
             std::function<void(uint64_t)> reply);
  void Submit(uint64_t session, const Write& write, std::function<void()> acknowledge);
  uint64_t BlockOf(const VolumeId& volume, size_t block) { return stored_.blocks[volume][block]; }
  bool InFlight(const VolumeId& volume, Generation generation) const;

  // A node's heartbeat LUN: the block of the heartbeat, and the notice of the node's fence.
  void WriteHeartbeat(const NodeId& node, const std::string& block);
  std::string NoticeTo(const NodeId& node) const;
  uint64_t tgtd() const { return life_; }  // which of its lives it is in

  // Faults.
  void Stop() { up_ = false; }
  void Start(bool sessions_survive);
  void set_second(SecondTgtd now);
  void set_slow(Span most) { slow_ = most; }
  void set_endless(int percent) { endless_percent_ = percent; }  // of the commands, until it is 0 again
  void set_looks(Span least, Span most) { look_ = {least, most}; }
  void set_steady_looks(Span least, Span most) { look_ = steady_look_ = {least, most}; }
  void end_slow_looks() { look_ = steady_look_; }
  Span longest_look() const { return look_.second; }
  void TakeCopy() { copy_ = stored_; }
  void RestoreCopy();
  void AcceptRestore();  // an operator has said so

 private:
  struct Grant {
    VolumeId volume;
    NodeId node;
    bool closing = false;
  };
  struct Stored {
    Term term = 0;
    Generation last = 0;
    std::map<Generation, Grant> grants;
    std::map<NodeId, ArrayFence> fences;
    std::map<VolumeId, std::array<uint64_t, kBlocks>> blocks;
  };
  struct Session {
    NodeId node;
    VolumeId volume;
    Generation generation = 0;
    bool open = true;
    int in_flight = 0;
  };
  struct Drain {  // replies when `done` says so
    std::function<bool()> done;
    std::function<void()> reply;
  };

  // Its tgtd does not answer the agent.
  bool IsUnseen(Generation generation) const;
  bool Hangs(Generation generation) const { return second_ == SecondTgtd::kHangs && generation % 2 == 1; }
  void CloseSessions(Generation generation);
  bool IsDrained(const VolumeId& volume) const;
  void CloseGrant(Generation generation);
  void CloseFencedGrants(ArrayFence& fence);
  void Land(uint64_t session, const Write& write, bool endless, const std::function<void()>& acknowledge);
  void Settle();
  bool FenceIsOver(const NodeId& node, const VolumeSet& volumes) const;
  bool IsThere(const Waiter& waiter) const { return waiter.until > world_.now() && !waiter.abandoned(); }
  bool TryGrant(const Waiter& waiter);

  World& world_;
  const ArrayId id_;
  const Endpoint endpoint_, portal_;
  bool up_ = true, restored_ = false;
  SecondTgtd second_ = SecondTgtd::kAnswers;
  Span slow_ = 3_ms;
  int endless_percent_ = 0;
  std::pair<Span, Span> look_, steady_look_;  // at least, at most
  Stored stored_, copy_;
  uint64_t last_session_ = 0, life_ = 0, restores_ = 0;
  std::map<uint64_t, Session> sessions_;
  std::map<Generation, uint64_t> commands_;  // of each grant: others' are no sign of its node
  std::set<VolumeId> shared_;
  std::vector<Waiter> waiters_;
  std::vector<Drain> drains_;
  std::map<NodeId, std::pair<uint64_t, WorldTime>> landed_;  // since the agent was started
};

}  // namespace lunkeeper::fencing::sim

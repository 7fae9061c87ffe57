#pragma once
// For the golden scenarios: a small world that does what a script says and otherwise what a well one would:
// nodes send heartbeats, arrays answer, actions succeed 10 ms later. One thread; a script that makes no sense
// throws std::runtime_error. The words of a script are listed in scenarios/README.md.

#include <functional>
#include <memory>
#include <sstream>
#include <string>

#include "fencing/core/core.h"

namespace lunkeeper::fencing {

class ScriptedWorld {
 public:
  // Runs a whole script and returns the actions and what was said, a line each.
  static std::string Run(const std::string& script);

 private:
  struct Machine {
    NodeId id;
    std::string boot = "boot1";
    uint64_t sequence = 0, commands = 0;
    bool heartbeats = true, storage = true, probe = true, kubelet = true, kubelet_ok = true, io = true;
    bool route = true;  // of the observer, to it
    bool reads_notes = true, cleans = true;
    VolumeSet failing, failed, idle, present;
    std::map<ArrayId, Generation> known;
  };
  struct ArrayModel {
    bool up = true, removed = false;
    bool portals = true;                                    // answer the observer
    std::map<NodeId, std::pair<uint64_t, Instant>> landed;  // last writes to heartbeat LUNs, and when
    std::vector<Span> takes;                                // looks, one after the other; empty: no time
    size_t looks = 0;
    bool looking = false;
    Generation last = 0;
    Term term = 0;
    std::map<NodeId, ArrayFence> fences;
    std::map<VolumeId, NodeId> holders;
    VolumeSet hidden;  // at a tgtd that hangs: their commands are not counted, and no fence ends there
  };

  void Line(const std::string& line);
  void Setup(const std::string& word, std::istringstream& words);
  void SetOption(const std::string& name, const std::string& value);
  void AddPod(std::istringstream& words);
  void Happen(const std::string& subject, std::istringstream& words);
  void HappenToNode(Machine& machine, std::istringstream& words);
  void HappenToObject(Machine& machine, const std::string& what);
  static void Reboot(Machine& machine);
  void Rewrite(Machine& machine, int number);
  void HappenToVolumes(Machine& machine, const std::string& what, std::istringstream& words);
  void HappenToArray(const ArrayId& id, std::istringstream& words);
  void HappenToPod(Pod& pod, const std::string& how);
  void HappenToWorld(const std::string& subject, std::istringstream& words);

  void Start();
  void RunUntil(Instant end);
  void EverySoOften();
  void Renew(const NodeName& name);
  void Poll();
  void Look(const ArrayId& id);
  ArrayView ViewOf(const ArrayId& id, Instant asked) const;
  void After(Span delay, std::function<void()> what);
  void Feed(decltype(Event::what) what);
  void Do(const Action& action);
  void Answer(uint64_t action, Outcome outcome, Done done = {});
  Outcome NextOutcome(const std::string& kind);

  Done Effect(const PutNodeFence& call, Outcome& outcome);
  Done Effect(const ReadKubelet& call);
  Done Effect(const AskReplicas& call);
  Done Effect(const RemoveNodeFence& call);
  Done Effect(const FenceNode& call, Outcome& outcome);
  Done Effect(const UnfenceNode& call);
  Done Effect(const SetTaint& call);
  Done Effect(const ChargeVolume& call);
  Done Effect(const DeletePod& call);
  void OtherTakesLease();
  void Replace(Pod pod);
  void Finalize(PodId id);
  void Clean(Machine& machine);
  Machine& Find(const std::string& name);
  void MakeFence(const std::string& what, const std::string& how);
  // "n1" is the node that this machine is now; "n1.i" is the first one, and "n1.all" is the machine.
  NodeId FindFenced(const std::string& name);
  // As an array does by itself, of what a fence has begun.
  static void EndFencedGrants(ArrayModel& array);
  void HaveFence(ArrayModel& array, const std::string& name, std::istringstream& words);
  Version NextVersion() { return Version("v" + std::to_string(++version_)); }

  Settings settings_;
  std::map<std::string, Span> answers_;  // how long calls of a kind take, if it was said
  std::unique_ptr<Core> core_;
  Instant now_;
  uint64_t version_ = 0;
  bool api_ = true, stalled_ = false, others_lead_ = false, show_all_ = false, leases_late_ = false,
       heartbeat_luns_ = true;
  std::map<NodeName, Machine> machines_;
  std::map<NodeName, Node> nodes_, late_;
  std::map<ArrayId, ArrayModel> arrays_;
  std::map<PodId, Pod> pods_;
  std::set<NodeName> heard_by_other_;   // nodes whose heartbeats reach the other replica
  std::set<NodeName> ended_for_other_;  // whose streams to it ended, and whose kernels answer it
  std::optional<ReplicaSight> other_sees_;
  std::set<PodId> finalizers_;  // pods whose objects stay when they are deleted
  std::map<NodeId, NodeFence> fences_;
  std::map<NodeName, KubeletLease> renewals_;
  std::vector<KubeletLease> late_leases_;  // that the watch has not brought yet
  LeaseSeen lease_;
  std::multimap<Instant, std::function<void()>> agenda_;
  std::map<std::string, std::pair<Outcome, int>> scripted_;
  std::string trace_;
};

}  // namespace lunkeeper::fencing

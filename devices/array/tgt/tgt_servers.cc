// How an array's tgtds are found again. As many as are asked for always run. A further one runs while the
// catalogue has a grant in it, and while a process holds its lock: a smaller --tgtds, or a catalogue that was
// set back, must leave none alone that serves the pool. It is taken over as any other, and killed if it
// serves what the catalogue does not know.
//
// Each has a watching thread and a tick of its own (TgtDaemon), so one that hangs or dies keeps up the
// volumes and the releases in it, and no others. What concerns the whole array is as careful as its worst
// tgtd.
#include "devices/array/tgt/tgt_servers.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/log.h"
#include "base/periodic.h"
#include "base/status_macros.h"
#include "base/steady_deadline.h"
#include "devices/array/tgt/ended_clients.h"
#include "devices/array/tgt/image_questions.h"
#include "devices/array/tgt/tgtd_lock.h"

namespace lunkeeper {
namespace {

constexpr int kHighestControlPort = 32767;
constexpr int kHighestPort = 65535;
// With a look each half a second, looks stay close enough to each other to tell when a node fell silent.
constexpr absl::Duration kFurtherAnswers = absl::Milliseconds(500);

// The tgtds that must run; see the top of this file.
absl::StatusOr<int> CountTgtds(int wanted, Catalogue& catalogue, const std::string& directory) {
  RETURN_IF_ERROR(CheckLocksAreThere(directory));
  ASSIGN_OR_RETURN(const int highest, catalogue.grants().HighestTgtd());
  int count = std::max(wanted, highest + 1);
  for (int number = count; number < kMostTgtds; ++number) {
    const std::string path = TgtdLockPath(directory, number);
    if (::access(path.c_str(), F_OK) != 0 || TgtdLock(path).TakeLock().ok()) continue;
    count = number + 1;
  }
  if (count > wanted)
    LogWarn("array", "more tgtds than asked for go on, for they have grants or are alive",
            {{"asked for", absl::StrCat(wanted)}, {"tgtds", absl::StrCat(count)}});
  return count;
}

absl::StatusOr<TgtDaemonOptions> OptionsOf(int number, TgtDaemonOptions options,
                                           const std::string& directory) {
  options.lock_path = TgtdLockPath(directory, number);
  if (number == 0) return options;
  options.control_port += number;
  if (options.control_port > kHighestControlPort)
    return absl::InvalidArgumentError(absl::StrCat("tgtd ", number, " would have the control port ",
                                                   options.control_port, ", the highest is ",
                                                   kHighestControlPort, ": choose a lower one"));
  if (!options.output_path.empty()) absl::StrAppend(&options.output_path, "-", number);
  for (std::string& portal : options.portals) {
    ASSIGN_OR_RETURN(portal, PortalOfTgtd(portal, number));
  }
  return options;
}

// One tgtd would have it. To nodes of volumes in the other it would answer that their targets are gone, and a
// node gives the device up then.
absl::Status AddPortals(int number, const std::vector<std::string>& added, std::set<std::string>& portals) {
  for (const std::string& portal : added) {
    if (portals.insert(portal).second) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "portal ", portal, " would be of tgtd ", number,
        " and of another one: of portals of one address, leave as many ports apart as there are tgtds"));
  }
  return absl::OkStatus();
}

absl::Status FirstError(const std::vector<absl::Status>& statuses) {
  for (const absl::Status& status : statuses) RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> PortalOfTgtd(const std::string& portal, int number) {
  const size_t colon = portal.rfind(':');
  int port = 0;
  if (colon == std::string::npos || !absl::SimpleAtoi(portal.substr(colon + 1), &port))
    return absl::InvalidArgumentError(absl::StrCat("portal ", portal, ": it has no port"));
  if (port + number > kHighestPort)
    return absl::InvalidArgumentError(absl::StrCat("portal ", portal, ": tgtd ", number,
                                                   " would have a port above ", kHighestPort,
                                                   "; choose a lower one"));
  return absl::StrCat(portal.substr(0, colon + 1), port + number);
}

// A node that may have missed the answer to a flush waits for longer before it asks (iscsi_lun.cc).
constexpr absl::Duration kLookForErrors = absl::Milliseconds(500);

// The daemon's callbacks use the table and the targets, from StartServing on.
struct TgtServers::Server {
  Server(int number, const TgtDaemonOptions& daemon_options, std::vector<std::string> peer_portals,
         const TgtServersOptions& options, Catalogue& catalogue, const ImageStore& images, VolumeGates& gates)
      : client(daemon_options.control_port),
        table(&client, {.array = options.array,
                        .portals = [this] { return daemon.ListOpenPortals(); },
                        .peer_portals = std::move(peer_portals),
                        .cache_id = options.cache_id,
                        .images_may_be_silent = images.may_be_silent_alone(),
                        .opening_mark = daemon_options.lock_path + ".opening",
                        .accounts_kept_for = options.accounts_kept_for}),
        targets(catalogue, images, table, gates, options.drain_timeout, number),
        daemon(
            daemon_options, client, &table.openings(),
            [this, list = number == 0 ? options.list_heartbeat_luns : nullptr](bool taken_over) {
              return targets.RestoreTargets(list ? list() : std::vector<Generation>(), taken_over);
            },
            [this, tick = number == 0 ? options.tick : nullptr] {
              if (tick) tick();
              targets.ReleaseLeftOvers();
              targets.RetryHeld();
              table.accounts().DeleteOld();
              table.empty_targets().DeleteAll();
            },
            [&catalogue, &images, number] { EndClientsOfTgtd(catalogue, images, number); }),
        errors(kLookForErrors, [this] { table.cache_ids().ShowErrors(); }) {}

  // The portals first: a node that comes back is refused a connection, and tries the next portal.
  absl::Status CloseVolumes(absl::Duration within) {
    const SteadyDeadline deadline(within);
    ASSIGN_OR_RETURN(const std::vector<std::string> portals, client.ListPortals());
    for (const std::string& portal : portals) RETURN_IF_ERROR(client.ClosePortal(portal));
    return targets.CloseTargets(deadline.left());
  }

  TgtClient client;
  TargetTable table;
  GrantTargets targets;
  bool started = false;
  TgtDaemon daemon;  // its threads use the others, but the last
  Periodic errors;
};

absl::StatusOr<std::unique_ptr<TgtServers>> TgtServers::Make(const TgtServersOptions& options,
                                                             Catalogue& catalogue, const ImageStore& images,
                                                             VolumeGates& gates) {
  ASSIGN_OR_RETURN(const int count, CountTgtds(options.tgtds, catalogue, options.directory));
  std::unique_ptr<TgtServers> servers(new TgtServers(options.tgtds));
  std::set<std::string> portals;
  for (int number = 0; number < count; ++number) {
    ASSIGN_OR_RETURN(const TgtDaemonOptions daemon, OptionsOf(number, options.first, options.directory));
    RETURN_IF_ERROR(AddPortals(number, daemon.portals, portals));
    std::vector<std::string> peers = options.peer_portals;
    for (std::string& portal : peers) {
      ASSIGN_OR_RETURN(portal, PortalOfTgtd(portal, number));
    }
    RETURN_IF_ERROR(AddPortals(number, peers, portals));
    servers->servers_.push_back(
        std::make_unique<Server>(number, daemon, std::move(peers), options, catalogue, images, gates));
  }
  const auto check = [all = servers.get()](const GrantRow& grant) {
    return all->ServerOf(grant).daemon.CheckAnswering();
  };
  const auto reopen = [all = servers.get()](const GrantRow& grant) {
    return all->TargetsOf(grant).ReopenLun(grant, kStoreAnswers);
  };
  servers->reopener_ = std::make_unique<ImageReopener>(catalogue, images, gates, check, reopen);
  return servers;
}

TgtServers::TgtServers(int wanted) : wanted_(wanted) {}
TgtServers::~TgtServers() = default;

absl::Status TgtServers::StartServing() {
  std::vector<absl::Status> started(servers_.size());
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < servers_.size(); ++i) {
    if (servers_[i]->started) continue;
    threads.emplace_back([&started, i, server = servers_[i].get()] {
      started[i] = server->daemon.StartServing();
      // Its port is another program's, say. Its grants stay its own: nothing that has to be drained there is
      // reported as over. What the whole array needs, heartbeats for one, is in the first.
      if (i > 0 && absl::IsUnavailable(started[i])) {
        server->daemon.KeepTrying(started[i]);
        started[i] = absl::OkStatus();
      }
      server->started = started[i].ok();
    });
  }
  threads.clear();
  RETURN_IF_ERROR(FirstError(started));
  reopener_->StartLooking();
  return absl::OkStatus();
}

void TgtServers::StopWatching() {
  reopener_->StopLooking();
  for (const auto& server : servers_) server->daemon.StopWatching();
}

absl::Status TgtServers::CloseVolumes(absl::Duration within) {
  std::vector<absl::Status> closed(servers_.size());
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < servers_.size(); ++i)
    threads.emplace_back(
        [&closed, i, within, server = servers_[i].get()] { closed[i] = server->CloseVolumes(within); });
  threads.clear();
  return FirstError(closed);
}

absl::Status TgtServers::WaitReady(const std::vector<GrantRow>& grants, absl::Time deadline) {
  for (const GrantRow& grant : grants) RETURN_IF_ERROR(ServerOf(grant).daemon.WaitReady(deadline));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int>> TgtServers::ListForNewGrants(absl::Time deadline) const {
  std::vector<int> numbers;
  for (int number = 0; number < wanted_; ++number)
    if (servers_[static_cast<size_t>(number)]->daemon.CheckAnswering().ok()) numbers.push_back(number);
  if (!numbers.empty()) return numbers;
  RETURN_IF_ERROR(servers_.front()->daemon.WaitReady(deadline));
  return std::vector<int>{0};
}

absl::Status TgtServers::CheckAnswering() const { return FirstError(CheckEach()); }

std::vector<absl::Status> TgtServers::CheckEach() const {
  std::vector<absl::Status> statuses;
  for (const auto& server : servers_) statuses.push_back(server->daemon.CheckAnswering());
  return statuses;
}

absl::StatusOr<std::vector<std::unique_ptr<TgtdPause>>> TgtServers::PauseTgtds() const {
  std::vector<std::unique_ptr<TgtdPause>> pauses;
  for (const auto& server : servers_) {
    ASSIGN_OR_RETURN(std::unique_ptr<TgtdPause> pause, server->daemon.PauseTgtd());
    pauses.push_back(std::move(pause));
  }
  return pauses;
}

absl::StatusOr<std::vector<TgtStatistics>> TgtServers::ReadStatistics() const {
  std::vector<TgtStatistics> all;
  for (const auto& server : servers_) {
    ASSIGN_OR_RETURN(const std::vector<TgtStatistics> of_one, server->client.ReadStatistics());
    all.insert(all.end(), of_one.begin(), of_one.end());
  }
  return all;
}

std::vector<absl::StatusOr<std::vector<TgtStatistics>>> TgtServers::ReadStatisticsOfEach() const {
  std::vector<absl::StatusOr<std::vector<TgtStatistics>>> each(servers_.size());
  std::vector<std::jthread> threads;
  for (size_t i = 1; i < servers_.size(); ++i)
    threads.emplace_back([&each, i, server = servers_[i].get()] {
      // One that is known to hang is waited for no more.
      const absl::Status answering = server->daemon.CheckAnswering();
      if (answering.ok()) {
        each[i] = server->client.ReadStatistics(kFurtherAnswers);
      } else {
        each[i] = answering;
      }
    });
  each[0] = servers_[0]->client.ReadStatistics();
  threads.clear();  // waits for them, before what they write to is moved
  return each;
}

std::vector<uint64_t> TgtServers::CountGrants(const std::vector<GrantRow>& grants) const {
  std::vector<uint64_t> counts;
  for (size_t number = 0; number < servers_.size(); ++number)
    counts.push_back(
        static_cast<uint64_t>(std::ranges::count(grants, static_cast<int>(number), &GrantRow::tgtd)));
  return counts;
}

std::optional<uint64_t> TgtServers::CountSessions(const GrantsByTarget& grants) const {
  uint64_t sessions = 0;
  for (const auto& server : servers_) {
    if (!server->daemon.CheckAnswering().ok()) return std::nullopt;
    const auto of_one = server->client.ReadStatistics(kFurtherAnswers);
    if (!of_one.ok()) return std::nullopt;
    for (const TgtStatistics& each : *of_one) sessions += grants.contains(each.target) ? 1 : 0;
  }
  return sessions;
}

uint64_t TgtServers::CountDeaths() const {
  uint64_t deaths = 0;
  for (const auto& server : servers_) deaths += server->daemon.CountDeaths();
  return deaths;
}

uint64_t TgtServers::CountRefusedLogins() const {
  uint64_t refused = 0;
  for (const auto& server : servers_) refused += server->daemon.CountRefusedLogins();
  return refused;
}

uint64_t TgtServers::CountEndedConnections() const {
  uint64_t ended = 0;
  for (const auto& server : servers_) ended += server->daemon.CountEndedConnections();
  return ended;
}

absl::Duration TgtServers::OldestRelease() const {
  absl::Duration oldest;
  for (const auto& server : servers_) oldest = std::max(oldest, server->targets.OldestRelease());
  return oldest;
}

TgtServers::Server& TgtServers::ServerOf(const GrantRow& grant) {
  // Make() has counted the catalogue's, and new ones are among those asked for.
  LK_CHECK(grant.tgtd >= 0 && static_cast<size_t>(grant.tgtd) < servers_.size(),
           "each grant is in a tgtd that this program runs");
  return *servers_[static_cast<size_t>(grant.tgtd)];
}

TargetTable& TgtServers::TableOf(const GrantRow& grant) { return ServerOf(grant).table; }
GrantTargets& TgtServers::TargetsOf(const GrantRow& grant) { return ServerOf(grant).targets; }
TgtDaemon& TgtServers::first() { return servers_.front()->daemon; }

// Side by side: one that hangs holds up the call, and no release in another.
absl::Status TgtServers::FinishReleasing(const std::vector<GrantRow>& grants, absl::Time deadline) {
  std::map<int, std::vector<GrantRow>> of_tgtd;
  for (const GrantRow& grant : grants) of_tgtd[grant.tgtd].push_back(grant);
  std::vector<absl::Status> finished(of_tgtd.size());
  std::vector<std::jthread> threads;
  size_t next = 0;
  for (auto& [tgtd, own] : of_tgtd) {
    GrantTargets& targets = TargetsOf(own.front());
    absl::Status& status = finished[next++];
    // The last on this thread, which has nothing else to do.
    if (next == of_tgtd.size()) {
      status = targets.FinishReleasing(std::move(own), deadline);
    } else {
      threads.emplace_back([&] { status = targets.FinishReleasing(std::move(own), deadline); });
    }
  }
  threads.clear();
  return FirstError(finished);
}

}  // namespace lunkeeper

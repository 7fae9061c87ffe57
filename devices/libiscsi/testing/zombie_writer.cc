// A node that does not know it is fenced: keeps a deep queue of writes in flight on a LUN, over several
// sessions at once, and logs in again without end when a session is lost or refused. What it has done is in a
// mapped file of counters, to be read by the test at any time.
//
//   zombie_writer --portal P --target IQN --initiator IQN --counters FILE
//                 [--user U --secret S] [--lun N] [--depth N] [--sessions N]
//
// Every write is a block with a stamp (stamp.h) whose version is a number never used before, so that any
// write that lands changes the LUN. Runs until SIGTERM.

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

extern "C" {
#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>
}

#include "base/unique_fd.h"
#include "devices/libiscsi/testing/stamp.h"
#include "devices/types.h"

namespace lunkeeper {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kLoginLimit = std::chrono::seconds(2);
// Between two logins: without it, refused ones are all the target has time for.
constexpr auto kLoginPause = std::chrono::milliseconds(2);

struct WriterOptions {
  Connection connection;
  unsigned depth = 64;
  unsigned sessions = 2;
  std::string counters;
};

// The layout is read by the tests.
struct WriterCounters {
  std::atomic<uint64_t> sent, acked, failed, logins, refused;
};

std::atomic<bool> stop = false;
void Stop(int) { stop = true; }

WriterCounters* MapCounters(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd || ftruncate(fd.get(), sizeof(WriterCounters)) != 0) return nullptr;
  void* const map = mmap(nullptr, sizeof(WriterCounters), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  return map == MAP_FAILED ? nullptr : static_cast<WriterCounters*>(map);
}

// One session, from login to its loss. libiscsi calls back on this object's thread, from Serve.
class Session {
 public:
  Session(const WriterOptions& options, WriterCounters* counters)
      : options_(options), counters_(*counters), context_(iscsi_create_context(Initiator().c_str())) {}
  ~Session() {
    lost_ = true;  // no callback sends again
    iscsi_destroy_context(context_);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  bool LogIn() {
    const Connection& connection = options_.connection;
    iscsi_set_noautoreconnect(context_, 1);
    iscsi_set_session_type(context_, ISCSI_SESSION_NORMAL);
    iscsi_set_header_digest(context_, ISCSI_HEADER_DIGEST_NONE);
    iscsi_set_targetname(context_, connection.target.value().c_str());
    if (!connection.chap.user.empty()) {
      iscsi_set_initiator_username_pwd(context_, connection.chap.user.c_str(),
                                       connection.chap.secret.c_str());
    }
    if (iscsi_full_connect_async(context_, connection.portal.c_str(), static_cast<int>(connection.lun),
                                 LoggedIn, this) != 0) {
      return false;
    }
    const auto deadline = Clock::now() + kLoginLimit;
    while (!lost_ && !logged_in_ && !stop && Clock::now() < deadline) Serve();
    return logged_in_ && !lost_;
  }

  bool ReadCapacity() {
    if (iscsi_readcapacity16_task(context_, static_cast<int>(options_.connection.lun), HaveCapacity, this) ==
        nullptr) {
      return false;
    }
    const auto deadline = Clock::now() + kLoginLimit;
    while (!lost_ && blocks_ == 0 && !stop && Clock::now() < deadline) Serve();
    return blocks_ > 0;
  }

  void WriteUntilLost() {
    std::vector<Slot> slots(options_.depth);
    for (Slot& slot : slots) {
      slot.session = this;
      Send(&slot);
    }
    while (!lost_ && !stop) Serve();
    lost_ = true;
    iscsi_destroy_context(context_);  // the slots' callbacks come now, while they live
    context_ = nullptr;
  }

 private:
  struct Slot {
    Session* session = nullptr;
    std::array<char, kStampBlockBytes> block;
  };

  std::string Initiator() const { return options_.connection.initiator.value(); }

  void Serve() {
    pollfd poll_fd{iscsi_get_fd(context_), static_cast<short>(iscsi_which_events(context_)), 0};
    poll(&poll_fd, 1, 20);
    if (iscsi_service(context_, poll_fd.revents) != 0) lost_ = true;
  }

  void Send(Slot* slot) {
    const uint64_t version = ++counters_.sent;
    const uint64_t block = version * 2654435761 % blocks_;
    WriteStamp(StampBlock(slot->block), block, version);
    const uint64_t sectors = kStampBlockBytes / sector_bytes_;
    if (iscsi_write16_task(context_, static_cast<int>(options_.connection.lun), block * sectors,
                           reinterpret_cast<unsigned char*>(slot->block.data()), kStampBlockBytes,
                           static_cast<int>(sector_bytes_), 0, 0, 0, 0, 0, Written, slot) == nullptr) {
      lost_ = true;
    }
  }

  static void LoggedIn(iscsi_context*, int status, void*, void* self) {
    auto* const session = static_cast<Session*>(self);
    (status == SCSI_STATUS_GOOD ? session->logged_in_ : session->lost_) = true;
  }

  static void HaveCapacity(iscsi_context*, int status, void* data, void* self) {
    auto* const session = static_cast<Session*>(self);
    auto* const task = static_cast<scsi_task*>(data);
    if (status == SCSI_STATUS_GOOD && task != nullptr && task->datain.size >= 12) {
      session->sector_bytes_ = scsi_get_uint32(task->datain.data + 8);
      session->blocks_ = (scsi_get_uint64(task->datain.data) + 1) * session->sector_bytes_ / kStampBlockBytes;
    } else {
      session->lost_ = true;
    }
    if (task != nullptr) scsi_free_scsi_task(task);
  }

  static void Written(iscsi_context*, int status, void* data, void* argument) {
    auto* const slot = static_cast<Slot*>(argument);
    Session* const session = slot->session;
    if (data != nullptr) scsi_free_scsi_task(static_cast<scsi_task*>(data));
    ++(status == SCSI_STATUS_GOOD ? session->counters_.acked : session->counters_.failed);
    if (!session->lost_ && status < SCSI_STATUS_CANCELLED) session->Send(slot);
  }

  const WriterOptions& options_;
  WriterCounters& counters_;
  iscsi_context* context_;
  bool logged_in_ = false;
  bool lost_ = false;
  uint64_t blocks_ = 0;
  uint32_t sector_bytes_ = 0;
};

void LogInWithoutEnd(const WriterOptions& options, WriterCounters* counters) {
  while (!stop) {
    Session session(options, counters);
    if (session.LogIn() && session.ReadCapacity()) {
      ++counters->logins;
      session.WriteUntilLost();
    } else {
      ++counters->refused;
      std::this_thread::sleep_for(kLoginPause);
    }
  }
}

int Run(const WriterOptions& options) {
  signal(SIGTERM, Stop);
  signal(SIGINT, Stop);
  signal(SIGPIPE, SIG_IGN);
  WriterCounters* const counters = MapCounters(options.counters);
  if (counters == nullptr) {
    perror(options.counters.c_str());
    return 2;
  }
  std::vector<std::jthread> threads;
  for (unsigned i = 0; i < options.sessions; ++i)
    threads.emplace_back(LogInWithoutEnd, std::cref(options), counters);
  threads.clear();
  printf("sent %lu, acknowledged %lu, failed %lu; logins %lu, refused %lu\n", counters->sent.load(),
         counters->acked.load(), counters->failed.load(), counters->logins.load(), counters->refused.load());
  return 0;
}

}  // namespace
}  // namespace lunkeeper

int main(int argc, char** argv) {
  lunkeeper::WriterOptions options;
  std::string target, initiator;
  CLI::App app("Writes to a LUN for as long as the target lets it, and logs in again without end.");
  app.add_option("--portal", options.connection.portal)->required();
  app.add_option("--target", target)->required();
  app.add_option("--initiator", initiator)->required();
  app.add_option("--user", options.connection.chap.user);
  app.add_option("--secret", options.connection.chap.secret);
  app.add_option("--lun", options.connection.lun);
  app.add_option("--depth", options.depth)->check(CLI::Range(1, 1024));
  app.add_option("--sessions", options.sessions)->check(CLI::Range(1, 16));
  app.add_option("--counters", options.counters)->required();
  CLI11_PARSE(app, argc, argv);
  options.connection.target = lunkeeper::Iqn(target);
  options.connection.initiator = lunkeeper::Iqn(initiator);
  return lunkeeper::Run(options);
}

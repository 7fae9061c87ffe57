#pragma once
// A session of which a test decides what is sent and what is read. Thread-compatible; what fails fails the
// test.

#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "devices/array/array.h"

namespace lunkeeper::testing {

// A session that is cut when it goes.
class RawSession {
 public:
  static constexpr absl::Duration kArrives =
      absl::Milliseconds(300);  // in which what was sent has reached tgtd

  explicit RawSession(const Connection& connection, const std::string& alias = "")
      : context_(iscsi_create_context(connection.initiator.value().c_str())) {
    ::signal(SIGPIPE, SIG_IGN);
    iscsi_set_noautoreconnect(context_.get(), 1);
    iscsi_set_targetname(context_.get(), connection.target.value().c_str());
    iscsi_set_session_type(context_.get(), ISCSI_SESSION_NORMAL);
    if (!alias.empty()) iscsi_set_alias(context_.get(), alias.c_str());
    iscsi_set_initiator_username_pwd(context_.get(), connection.chap.user.c_str(),
                                     connection.chap.secret.c_str());
    REQUIRE(iscsi_full_connect_sync(context_.get(), connection.portal.c_str(), 1) == 0);
  }
  void SendWrite() {
    REQUIRE(iscsi_write16_task(context_.get(), 1, 0, data_, sizeof data_, 512, 0, 0, 0, 0, 0, Done, this) !=
            nullptr);
  }
  void SendReset() { REQUIRE(iscsi_task_mgmt_lun_reset_async(context_.get(), 1, Done, this) == 0); }
  // More pings than the sockets have room for answers to, of which it reads none: tgtd cannot end the session
  // while the node's socket is there.
  void SendUnreadPings(int count = 100, size_t bytes = 128 << 10) {
    const int size = 4096, socket = iscsi_get_fd(context_.get());
    REQUIRE(::setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &size, sizeof size) == 0);
    std::string ping(bytes, 'x');
    for (int i = 0; i < count; ++i)
      REQUIRE(iscsi_nop_out_async(context_.get(), Done, reinterpret_cast<unsigned char*>(ping.data()),
                                  static_cast<int>(ping.size()), this) == 0);
    SendAll();
  }
  // More data than the sockets have room for, of which it reads none: the commands are over at the disk, and
  // for tgtd they run.
  void SendUnreadReads(int count = 64, uint32_t bytes = kReadBytes) {
    const int size = 4096, socket = iscsi_get_fd(context_.get());
    REQUIRE(::setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &size, sizeof size) == 0);
    for (int i = 0; i < count; ++i)
      REQUIRE(iscsi_read16_task(context_.get(), 1, 0, bytes, 512, 0, 0, 0, 0, 0, Done, this) != nullptr);
    SendAll();
  }
  // Keeps this many reads under way, as deep as the sockets have room for and more; false once one has
  // failed.
  bool ReadsFor(absl::Duration length) {
    const absl::Time end = absl::Now() + length;
    for (int i = 0; i < 64; ++i) SendRead();
    while (reads_good_ && absl::Now() < end) {
      pollfd fd = {.fd = iscsi_get_fd(context_.get()),
                   .events = static_cast<short>(iscsi_which_events(context_.get())),
                   .revents = 0};
      if (::poll(&fd, 1, 10) < 0 || iscsi_service(context_.get(), fd.revents) != 0) return false;
      absl::SleepFor(absl::Milliseconds(1));
    }
    return std::exchange(reads_good_, false);
  }
  // Whether what was sent is answered.
  bool IsAnswered(absl::Duration within) {
    for (const absl::Time end = absl::Now() + within; !answered_ && absl::Now() < end;) {
      pollfd fd = {.fd = iscsi_get_fd(context_.get()),
                   .events = static_cast<short>(iscsi_which_events(context_.get())),
                   .revents = 0};
      REQUIRE(::poll(&fd, 1, 10) >= 0);
      REQUIRE(iscsi_service(context_.get(), fd.revents) == 0);
    }
    return answered_;
  }

 private:
  void SendAll() {
    for (const absl::Time end = absl::Now() + absl::Seconds(2);
         iscsi_out_queue_length(context_.get()) > 0 && absl::Now() < end;) {
      pollfd fd = {.fd = iscsi_get_fd(context_.get()), .events = POLLOUT, .revents = 0};
      REQUIRE(::poll(&fd, 1, 10) >= 0);
      if ((fd.revents & POLLOUT) != 0) REQUIRE(iscsi_service(context_.get(), POLLOUT) == 0);
    }
    REQUIRE(iscsi_out_queue_length(context_.get()) == 0);
    absl::SleepFor(kArrives);  // what tgtd has not read yet would wake it, and it would end the session
  }
  struct Deleter {
    void operator()(iscsi_context* context) const { iscsi_destroy_context(context); }
  };
  void SendRead() {
    reads_good_ =
        iscsi_read16_task(context_.get(), 1, 0, kReadBytes, 512, 0, 0, 0, 0, 0, ReadDone, this) != nullptr;
  }
  static void ReadDone(iscsi_context*, int status, void* task, void* self) {
    auto* const session = static_cast<RawSession*>(self);
    if (task != nullptr) scsi_free_scsi_task(static_cast<scsi_task*>(task));
    if (!session->reads_good_) return;
    session->reads_good_ = status == SCSI_STATUS_GOOD;
    if (session->reads_good_) session->SendRead();
  }
  // Also when the context goes.
  static void Done(iscsi_context*, int, void*, void* self) {
    static_cast<RawSession*>(self)->answered_ = true;
  }

  static constexpr uint32_t kReadBytes = 128 << 10;
  bool answered_ = false, reads_good_ = true;
  unsigned char data_[512] = {};
  const std::unique_ptr<iscsi_context, Deleter> context_;
};

}  // namespace lunkeeper::testing

#pragma once
// One SCSI command on its way through an InitiatorSession, and what became of it. Plain data.

#include <array>
#include <cstdint>

namespace lunkeeper::iscsi {

enum class Direction : uint8_t { kNone, kIn, kOut };

// The first part is filled by the caller before StartTask, the second by the session before OnTaskDone.
struct Task {
  std::array<uint8_t, 16> cdb{};
  std::array<char, 24> parameters;  // room for a small parameter list that `data` may point to
  Direction direction = Direction::kNone;
  char* data = nullptr;
  uint32_t length = 0;  // bytes to transfer
  void* owner = nullptr;

  uint32_t transferred = 0;  // bytes of `length` that the target took or gave
  uint8_t response = 0;      // 0: the target carried the command out, `status` holds
  uint8_t status = 0;        // SAM status
  uint8_t sense_key = 0, asc = 0, ascq = 0;
  bool deferred = false;  // the sense is of an earlier command, and this one was not carried out

  struct {
    uint32_t tag = 0;
    bool active = false, queued = false, command_sent = false;
    uint32_t received = 0;     // Data-In bytes
    uint32_t in_sn = 0;        // next DataSN or R2TSN of the target
    uint32_t send_offset = 0;  // next byte of data to go out
    uint32_t send_left = 0;    // of the burst under way
    uint32_t target_tag = 0, data_sn = 0;
    uint32_t batch = 0;    // the output batch its data was last part of
    Task* next = nullptr;  // in the send queue, or in the list of those done early
  } internal;
};

}  // namespace lunkeeper::iscsi

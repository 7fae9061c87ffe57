#pragma once
// What is known of a LUN, in memory that survives the process that drives it: health, counters, and what a
// successor needs to know of the past (boot id, size, writes that no flush has covered).
//
// All zero at first. A successor is given the same state and goes on from there; a boot id means that a login
// succeeded before. Written by the Lun's owner only; others, perhaps in other processes, may read the atomics
// at any time, `reason` and `boot_id` as a hint.

#include <atomic>
#include <cstdint>

#include "devices/iscsi/io_counters.h"
#include "devices/iscsi/shared_text.h"

namespace lunkeeper {

enum class LunHealth : uint32_t {
  kConnecting,  // the first login is under way
  kHealthy,
  kReconnecting,  // requests wait
  kFailed,        // for good
  kClosed,        // logged out after Close
};

// Why a Lun has failed for good. Decisions rest on this, `LunState::reason` is for people.
enum class LunFailure : uint32_t {
  kNone,
  kRefused,        // the target refuses the login: what a released or fenced grant looks like
  kOtherLun,       // another serial or block size, or too small
  kAway,           // no login for `replacement_timeout`
  kHostRestarted,  // the storage host restarted before acknowledged writes were flushed
  kNoReset,        // the target cannot reset a LUN, without which no command can be sent again safely
  kBadPortal,      // the portal is no numeric address
  kRequested,      // Fail was called
};

struct LunState {
  std::atomic<LunHealth> health;
  // Healthy as far as is known, but nothing has come for half a second that was asked for.
  std::atomic<bool> stalled;
  // Why it has failed, and a text for people about why it is not healthy; both set before `health`.
  std::atomic<LunFailure> failure;
  SharedText<160> reason;
  char boot_id[17];  // of the storage host, as the LUN showed it at the last good login; see cache_ids.h
  std::atomic<uint64_t> size_bytes;
  std::atomic<uint32_t> block_size;
  std::atomic<bool> write_cache;         // false: every acknowledged write is durable
  std::atomic<bool> unmap_zeroes;        // kDiscard works, and what was discarded reads as zeroes
  std::atomic<bool> unmap;               // kDiscard works
  std::atomic<bool> write_same;          // kWriteZeroes works
  std::atomic<uint64_t> cached_writes;   // acknowledged writes that went to a write cache, ever
  std::atomic<uint64_t> flushed_writes;  // how many of them a flush has covered
  std::atomic<uint64_t> reads, writes, flushes, read_bytes, written_bytes, errors;
  std::atomic<uint64_t> logins;  // successful ones
  // When the first of them was, in Unix seconds. 0: it is not known, an older worker made it.
  std::atomic<int64_t> first_login;
  // Of what succeeded, from Submit to the answer: waiting for a target that is away is in it.
  LatencyCounters read_latency, write_latency, flush_latency;
  // Of `errors`: requests that write, and flushes. Each may have lost data that nobody waited for.
  std::atomic<uint64_t> failed_writes;
  std::atomic<uint64_t> digest_errors;  // connections that a wrong digest has ended
  // The portal of the last good login; since when it has been that one, in Unix seconds; how often it was
  // another one than before. Empty: an older worker made the login.
  SharedText<64> portal;
  std::atomic<int64_t> portal_since;
  std::atomic<uint64_t> path_moves;
  // The target has told, since the last flush, that a write is lost which it had acknowledged.
  std::atomic<bool> lost_writes;
  // A flush of a cache that may be lost was sent, and nobody knows yet how it ended. See
  // RequestQueue::flush_was_cut.
  std::atomic<bool> flush_open;

  uint64_t unflushed() const { return cached_writes - flushed_writes; }
};

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<LunHealth>::is_always_lock_free,
              "LunState is shared between processes");

}  // namespace lunkeeper

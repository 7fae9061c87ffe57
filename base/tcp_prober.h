#pragma once
// Finds out whether a machine's kernel is alive, by a TCP connect: a living kernel accepts or refuses it even
// when no process there answers. The connection is closed at once.
//
// Thread-safe; never blocks. One thread of its own calls `done`. When the probe could not be made (a bad
// address, no descriptors, a firewall here), nothing is known, and `done` is not called.

#include <functional>
#include <memory>
#include <string>

namespace lunkeeper {

enum class ProbeResult {
  kAccepted,
  kRefused,     // which is an answer, too: of its kernel, or of a firewall on the way
  kUnanswered,  // for 400 ms; or nobody has that address, says a router or this machine
  kNoRoute      // this machine, or a router on the way, knows no way to that address
};

inline bool IsAnswer(ProbeResult result) {
  return result == ProbeResult::kAccepted || result == ProbeResult::kRefused;
}

class Prober {
 public:
  virtual ~Prober() = default;
  // `address` is a number, IPv4 or IPv6.
  virtual void Probe(const std::string& address, uint16_t port, std::function<void(ProbeResult)> done) = 0;
};

std::unique_ptr<Prober> MakeProber();

}  // namespace lunkeeper

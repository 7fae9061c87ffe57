#pragma once
// Finds out whether a machine's kernel is alive, by a TCP connect: a living kernel accepts or refuses it even
// when no process there answers. The connection is closed at once. Silence for 400 ms, or an unreachable
// host, means no.
//
// Thread-safe; never blocks. One thread of its own calls `done`. When the probe could not be made (a bad
// address, no descriptors, no network here), nothing is known, and `done` is not called.

#include <functional>
#include <memory>
#include <string>

namespace lunkeeper {

class Prober {
 public:
  virtual ~Prober() = default;
  // `address` is a number, IPv4 or IPv6.
  virtual void Probe(const std::string& address, uint16_t port, std::function<void(bool answered)> done) = 0;
};

std::unique_ptr<Prober> MakeProber();

}  // namespace lunkeeper

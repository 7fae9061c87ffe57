#pragma once
// Asks a machine's kernel whether it lives: a TCP connect, which a living kernel accepts or refuses even when
// nothing else there answers. The connection is closed at once. Silence for 400 ms, or an unreachable host,
// is no.
//
// Thread-safe; never blocks. One thread of its own calls `done`. When we could not ask (a bad address, no
// descriptors, no network of our own), nobody can tell, and `done` is not called.

#include <functional>
#include <memory>
#include <string>

namespace lunkeeper::fencing {

class Prober {
 public:
  virtual ~Prober() = default;
  // `address` is a number, IPv4 or IPv6.
  virtual void Probe(const std::string& address, uint16_t port, std::function<void(bool answered)> done) = 0;
};

std::unique_ptr<Prober> MakeProber();

}  // namespace lunkeeper::fencing

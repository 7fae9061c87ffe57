#pragma once
// Cuts JSON objects out of a stream of bytes as they arrive, so that a list of 100,000 pods is never in
// memory as a whole. It looks only for where an object ends: what is between its braces is for a parser to
// judge.
//
// Bounded: an object has at most kMostBytes and kMostDepth. One thread owns it. A failed cutter is of no more
// use. INVALID_ARGUMENT for what cannot be JSON of that shape; an error of `sink` is passed on.

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lunkeeper::kube {

class JsonCutter {
 public:
  static constexpr size_t kMostBytes = 16 << 20;  // etcd takes no object above 1.5 MiB
  static constexpr int kMostDepth = 512;
  enum class Shape {
    kStream,  // one object after another: a watch
    kList,    // one object, of which the elements of `items` are cut out
  };
  // The piece's bytes are gone after the call.
  using Sink = std::function<absl::Status(std::string_view piece)>;

  JsonCutter(Shape shape, Sink sink) : shape_(shape), sink_(std::move(sink)) {}

  absl::Status Feed(std::string_view bytes);
  // At the end of the stream: what is left, which is the list without its items, or nothing.
  absl::StatusOr<std::string> Finish() &&;

 private:
  absl::Status Open(char c);
  absl::Status Close(std::string_view bytes, size_t at);
  absl::Status Outside(char c);
  bool AtItems() const;
  bool InPiece() const { return piece_depth_ >= 0 && depth_ > piece_depth_; }

  const Shape shape_;
  const Sink sink_;
  int depth_ = 0;
  int piece_depth_ = shape_ == Shape::kStream ? 0 : -1;  // pieces begin here; -1: not at the items, now
  bool in_string_ = false, escaped_ = false;
  size_t piece_from_ = 0;  // where in the bytes being fed the piece goes on
  std::string piece_;      // what earlier bytes had of it
  std::string rest_;
};

}  // namespace lunkeeper::kube

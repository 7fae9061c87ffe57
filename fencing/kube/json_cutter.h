#pragma once
// Cuts JSON objects out of a stream of bytes as they arrive, so that a list of 100,000 pods is never in
// memory as a whole. It only finds where an object ends; whether its content is valid JSON is the parser's
// business.
//
// Bounded: an object has at most kMostBytes and kMostDepth. One thread owns a cutter. After a failure it is
// useless. INVALID_ARGUMENT: the bytes cannot be JSON of that shape; an error of `sink` is passed on.

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
    kStream,  // a watch: one object after another
    kList,    // a list: one object, whose elements of `items` are the pieces
  };
  // The piece's bytes are valid during the call only.
  using Sink = std::function<absl::Status(std::string_view piece)>;

  JsonCutter(Shape shape, Sink sink) : shape_(shape), sink_(std::move(sink)) {}

  absl::Status Feed(std::string_view bytes);
  // At the end of the stream: the list without its items; of a stream, nothing.
  absl::StatusOr<std::string> TakeRest() &&;

 private:
  absl::Status OpenBracket(char c);
  absl::Status CloseBracket(std::string_view bytes, size_t at);
  absl::Status TakeOutside(char c);
  bool AtItems() const;
  bool InPiece() const { return piece_depth_ >= 0 && depth_ > piece_depth_; }

  const Shape shape_;
  const Sink sink_;
  int depth_ = 0;
  // The depth at which pieces begin; -1: outside of `items`.
  int piece_depth_ = shape_ == Shape::kStream ? 0 : -1;
  bool in_string_ = false, escaped_ = false;
  size_t piece_from_ = 0;  // where the current piece begins in the bytes being fed
  std::string piece_;      // the part of it that earlier bytes had
  std::string rest_;
};

}  // namespace lunkeeper::kube

#include "fencing/kube/json_cutter.h"

#include <catch2/catch.hpp>
#include <vector>

#include "fencing/kube/json.h"
#include "fencing/kube/watch_event.h"

namespace lunkeeper::kube {
namespace {

using Shape = JsonCutter::Shape;

struct Result {
  std::vector<std::string> pieces;
  absl::StatusOr<std::string> rest;
};

Result CutUp(Shape shape, const std::string& text, size_t step) {
  Result result;
  JsonCutter cutter(shape, [&](std::string_view piece) {
    result.pieces.emplace_back(piece);
    return absl::OkStatus();
  });
  for (size_t at = 0; at < text.size(); at += step) {
    if (absl::Status status = cutter.Feed(text.substr(at, step)); !status.ok()) {
      result.rest = status;
      return result;
    }
  }
  result.rest = std::move(cutter).TakeRest();
  return result;
}

}  // namespace

TEST_CASE("a list is cut into its items however its bytes arrive") {
  const std::string text =
      R"({"kind":"PodList", "note":"\"items\":[{}]", "metadata":{"items":[{"a":1}],"continue":"x"},)"
      R"( "items" : [ {"a":"}]\\\"{"} ,{"items":[{"b":2}]}, {} ], "last":[1,{"c":3}]})";
  for (size_t step = 1; step <= text.size(); ++step) {
    const Result result = CutUp(Shape::kList, text, step);
    REQUIRE(result.rest.ok());
    CHECK(result.pieces == std::vector<std::string>{R"({"a":"}]\\\"{"})", R"({"items":[{"b":2}]})", "{}"});
    const auto rest = ParseJson(*result.rest);
    REQUIRE(rest.ok());
    CHECK(FieldAt(*rest, {"items"}) == Json::array());
    CHECK(TextAt(*rest, {"metadata", "continue"}) == "x");
    CHECK(FieldAt(*rest, {"metadata", "items"}).size() == 1);
    CHECK(FieldAt(*rest, {"last"}).size() == 2);
  }
}

TEST_CASE("a stream is cut into its objects, with or without line ends between") {
  const std::string text = "{\"a\":[1,2]}\n{\"b\":\"\\\\\"}{\"c\":{}}\r\n";
  for (size_t step = 1; step <= text.size(); ++step) {
    const Result result = CutUp(Shape::kStream, text, step);
    REQUIRE(result.rest.ok());
    CHECK(result.pieces == std::vector<std::string>{"{\"a\":[1,2]}", "{\"b\":\"\\\\\"}", "{\"c\":{}}"});
  }
}

TEST_CASE("what cannot be right is refused") {
  CHECK_FALSE(CutUp(Shape::kStream, "{\"a\":1}, {\"a\":2}", 100).rest.ok());
  CHECK_FALSE(CutUp(Shape::kStream, "[{}]", 100).rest.ok());
  CHECK_FALSE(CutUp(Shape::kStream, "<html>", 100).rest.ok());
  CHECK_FALSE(CutUp(Shape::kStream, "}", 100).rest.ok());
  CHECK_FALSE(CutUp(Shape::kStream, "{\"cut off", 100).rest.ok());
  CHECK_FALSE(CutUp(Shape::kList, R"({"items":[1,2]})", 100).rest.ok());
  CHECK_FALSE(CutUp(Shape::kList, R"({"items":["x"]})", 100).rest.ok());
  CHECK_FALSE(CutUp(Shape::kList, R"({"items":[{})", 100).rest.ok());
  CHECK_FALSE(CutUp(Shape::kStream, std::string(JsonCutter::kMostDepth + 1, '{'), 100).rest.ok());
}

TEST_CASE("an object without an end takes bounded memory") {
  JsonCutter cutter(Shape::kStream, [](std::string_view) { return absl::OkStatus(); });
  const std::string chunk(1 << 20, ' ');
  absl::Status status = cutter.Feed("{");
  size_t fed = 0;
  for (; status.ok() && fed < 100 * chunk.size(); fed += chunk.size()) status = cutter.Feed(chunk);
  CHECK_FALSE(status.ok());
  CHECK(fed <= JsonCutter::kMostBytes + chunk.size());
}

TEST_CASE("events are read, and what is none is said to be none") {
  const auto added =
      ParseWatchEvent("watch pods", R"({"type":"ADDED","object":{"metadata":{"resourceVersion":"7"}}})");
  REQUIRE(added.ok());
  CHECK(added->type == ChangeType::kAdded);
  const auto gone = ParseWatchEvent(
      "watch pods", R"({"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}})");
  CHECK(absl::IsOutOfRange(gone.status()));
  CHECK(gone.status().message() == "watch pods: the API server refused (410): too old");
  for (const char* text : {"{", "[]", "{}", "null", R"({"type":"ADDED"})", R"({"type":"ADDED","object":{}})",
                           R"({"type":"NEW","object":{"metadata":{"resourceVersion":"7"}}})",
                           R"({"type":7,"object":{"metadata":{"resourceVersion":"7"}}})"}) {
    CHECK(absl::IsInternal(ParseWatchEvent("watch pods", text).status()));
  }
}

TEST_CASE("what is not there or of another type reads as empty") {
  const Json json = {{"a", {{"b", "text"}, {"n", 7}, {"f", true}}}, {"l", {1, 2}}};
  CHECK(TextAt(json, {"a", "b"}) == "text");
  CHECK(TextAt(json, {"a", "n"}).empty());
  CHECK(TextAt(json, {"a", "b", "c"}).empty());
  CHECK(TextAt(json, {"l", "b"}).empty());
  CHECK(NumberAt(json, {"a", "n"}) == 7);
  CHECK(NumberAt(json, {"a", "b"}) == 0);
  CHECK(FlagAt(json, {"a", "f"}));
  CHECK_FALSE(FlagAt(json, {"a", "b"}));
}

}  // namespace lunkeeper::kube

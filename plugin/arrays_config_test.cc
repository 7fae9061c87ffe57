#include "plugin/arrays_config.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/testing/test_host.h"
#include "devices/array/remote/testing/test_agent.h"

namespace lunkeeper {
namespace {

using testing::Eventually;
using testing::kAgentNames;
using testing::kControllerNames;
using testing::TestAgent;
using testing::TestCa;

constexpr char kGood[] = R"({
  "arrays": [
    {
      "name": "rack1", "address": "10.0.0.5:7480", "serverName": "storage1",
      "cert": "/tls/tls.crt", "key": "/tls/tls.key", "ca": "/tls/ca.crt",
      "default": true
    },
    {"name": "b", "address": ["[fd00::1]:7480", "storage2:7480"], "cert": "/c", "key": "/k", "ca": "/a"}
  ]
}
)";

std::string With(const std::string& from, const std::string& to) {
  return absl::StrReplaceAll(kGood, {{from, to}});
}

std::string Entry(const std::string& name, const std::string& address, const TlsFiles& tls) {
  return absl::StrCat(R"({"name": ")", name, R"(", "address": ")", address, R"(", "cert": ")",
                      tls.certificate, R"(", "key": ")", tls.key, R"(", "ca": ")", tls.ca, "\"}");
}

std::string File(const std::vector<std::string>& entries) {
  std::string text = "{\"arrays\": [";
  for (const std::string& entry : entries) absl::StrAppend(&text, text.back() == '[' ? "\n" : ",\n", entry);
  return text + "\n]}\n";
}

// As Kubernetes and careful people do.
void Replace(const std::string& path, const std::string& text) {
  std::ofstream(path + ".new") << text;
  std::filesystem::rename(path + ".new", path);
}

}  // namespace

TEST_CASE("a file that is right says all there is to know, in order of name") {
  const auto arrays = ParseArrays(kGood);
  REQUIRE(arrays.ok());
  REQUIRE(arrays->size() == 2);
  CHECK((*arrays)[0].remote.name == "b");
  CHECK((*arrays)[0].remote.addresses == std::vector<std::string>{"[fd00::1]:7480", "storage2:7480"});
  CHECK_FALSE((*arrays)[0].is_default);
  const ArrayEntry& rack = (*arrays)[1];
  CHECK(rack.remote.addresses == std::vector<std::string>{"10.0.0.5:7480"});
  CHECK(rack.remote.server_name == "storage1");
  CHECK(rack.remote.tls == TlsFiles{"/tls/tls.crt", "/tls/tls.key", "/tls/ca.crt"});
  CHECK(rack.is_default);
  CHECK(rack.line == 7);
}

TEST_CASE("a file that is wrong is refused with the line and what is wanted there") {
  struct Case {
    std::string text, line, why;
  };
  for (const Case& wrong : std::vector<Case>{
           {"", "line 1", "no JSON"},
           {"[]", "line 1", "object"},
           {"{}", "line 1", "one at least"},
           {"{\"arrays\":\n[]}", "line 2", "one at least"},
           {"{\"arrays\": 1}", "line 1", "want a list"},
           {"{\"arrays\": [\n1\n]}", "line 2", "array's object"},
           {With("10.0.0.5:7480\",", "10.0.0.5:7480\""), "line 4", "no JSON"},
           {With("\"serverName\"", "\"server\""), "line 4", "serverName"},
           {With("\"rack1\"", "\"Rack 1\""), "line 4", "a-z"},
           {With("\"rack1\"", "7"), "line 4", "want a text"},
           {With("10.0.0.5:7480", "10.0.0.5"), "line 4", "host:port"},
           {With("10.0.0.5:7480", "10.0.0.5:0"), "line 4", "host:port"},
           {With("\"storage2:7480\"", "7"), "line 8", "want a text"},
           {With("\"storage2:7480\"", "[]"), "line 8", "no list"},
           {With("\"storage2:7480\"", "\"storage2\""), "line 8", "host:port"},
           {With("storage2:7480", "[fd00::1]:7480"), "line 8", "twice"},
           {With("[\"[fd00::1]:7480\", \"storage2:7480\"]", "[]"), "line 8", "has no \"address\""},
           {With("/tls/tls.key", "tls.key"), "line 5", "absolute"},
           {With("\"/tls/ca.crt\"", "[\"/tls/ca.crt\"]"), "line 5", "no list"},
           {With("\"/tls/ca.crt\"", "{\"a\": \"b\"}"), "line 5", "no object"},
           {With("true", "\"yes\""), "line 6", "true or false"},
           {With("true", "1"), "line 6", "true or false"},
           {With(", \"ca\": \"/tls/ca.crt\"", ""), "line 7", "has no \"ca\""},
           {With("\"b\"", "\"rack1\""), "line 8", "twice"},
           {With("\"b\"", "\"b\", \"name\": \"c\""), "line 8", "twice"},
           {With("\"b\"", "\"b\", \"default\": true"), "line 8", "both the default"},
           {With("  ]\n}", "  ],\n  \"more\": 1}"), "line 10", "more"},
           {std::string(kGood) + "x", "line 11", "no JSON"},
       }) {
    const absl::Status refused = ParseArrays(wrong.text).status();
    INFO(wrong.text << "\n" << refused);
    CHECK(absl::IsInvalidArgument(refused));
    CHECK_THAT(std::string(refused.message()),
               Catch::StartsWith(wrong.line + ":") && Catch::Contains(wrong.why));
  }
}

TEST_CASE("at the start an array whose TLS files are missing is away, and the others are served") {
  const TestCa ca;
  const TlsFiles agent_tls = ca.Issue("agent", kAgentNames);
  const TlsFiles tls = ca.Issue("controller", kControllerNames);
  TestAgent one(agent_tls, "one"), two(agent_tls, "two");
  const std::string path = ca.folder() + "/arrays.json", later = ca.folder() + "/later.key";
  Replace(path, File({Entry("one", one.address(), tls),
                      Entry("two", two.address(), {tls.certificate, later, tls.ca})}));
  auto opened = OpenArraysFile(path);
  REQUIRE(opened.ok());
  ArraysFile& arrays = **opened;
  REQUIRE(arrays.ListArrays().size() == 2);
  CHECK(arrays.CheckServing().ok());
  CHECK(arrays.ListArrays().front().array->volumes().GetCapacity().ok());
  CHECK(absl::IsUnavailable(arrays.ListArrays().back().array->volumes().GetCapacity().status()));
  CHECK(absl::StrContains(arrays.Reload().message(), later));
  CHECK_FALSE(arrays.IsInForce());
  std::filesystem::copy_file(tls.key, later);
  REQUIRE(Eventually([&] { return arrays.IsInForce(); }));
  CHECK(arrays.ListArrays().back().array->volumes().GetCapacity().ok());
}

TEST_CASE("a changed file takes effect, a wrong one does not, and what stayed keeps its connection") {
  const TestCa ca;
  const TlsFiles agent_tls = ca.Issue("agent", kAgentNames);
  const TlsFiles tls = ca.Issue("controller", kControllerNames);
  TestAgent one(agent_tls, "one");
  TestAgent two(agent_tls, "two");
  const std::string path = ca.folder() + "/arrays.json";
  CHECK(absl::IsFailedPrecondition(OpenArraysFile(path).status()));
  Replace(path, File({Entry("one", one.address(), tls)}));
  auto opened = OpenArraysFile(path);
  INFO(opened.status());
  REQUIRE(opened.ok());
  ArraysFile& arrays = **opened;
  REQUIRE(arrays.ListArrays().size() == 1);
  const auto first = arrays.ListArrays().front().array;
  CHECK(first->volumes().GetCapacity().ok());
  CHECK(arrays.CheckServing().ok());
  CHECK(arrays.AskGateways().empty());
  one.SetGateway(GatewayState{.host = "storage-1", .epoch = 3});
  REQUIRE(arrays.AskGateways().size() == 1);
  CHECK(arrays.AskGateways().front().array == "one");
  CHECK(arrays.AskGateways().front().state.epoch == 3);
  one.SetServing(absl::UnavailableError("it does not"));
  REQUIRE(arrays.AskGateways().size() == 1);
  CHECK(arrays.AskGateways().front().state.epoch == 0);
  one.SetServing(absl::OkStatus());

  Replace(path, File({Entry("one", one.address(), tls), Entry("two", two.address(), tls)}));
  REQUIRE(Eventually([&] { return arrays.ListArrays().size() == 2; }));
  CHECK(arrays.ListArrays().front().array == first);
  CHECK(arrays.ListArrays().back().array->volumes().GetCapacity().ok());

  Replace(path, File({Entry("one", one.address(), tls), Entry("two", "nowhere", tls)}));
  REQUIRE(Eventually([&] { return !arrays.IsInForce(); }));
  CHECK(arrays.ListArrays().size() == 2);
  CHECK(arrays.ListArrays().back().array->volumes().GetCapacity().ok());
  CHECK_THAT(std::string(arrays.Reload().message()), Catch::Contains(path + ": line 3: \"address\""));
  Replace(path, File({Entry("two", two.address(), {tls.certificate, agent_tls.key, tls.ca})}));
  REQUIRE(Eventually([&] { return absl::StrContains(arrays.Reload().message(), "is not the key of"); }));
  CHECK(arrays.ListArrays().size() == 2);

  Replace(path, File({Entry("two", two.address(), tls)}));
  REQUIRE(Eventually([&] { return arrays.IsInForce() && arrays.ListArrays().size() == 1; }));
  CHECK(arrays.ListArrays().front().name == "two");
  CHECK(first->volumes().GetCapacity().ok());  // a call that still holds the removed array may finish
  two.Stop();
  CHECK(absl::IsUnavailable(arrays.CheckServing()));
}

}  // namespace lunkeeper

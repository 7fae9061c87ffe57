#pragma once
// Certificates for tests, made by the openssl command. A failure fails the test that asked.

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/subprocess.h"

namespace lunkeeper {

// A certificate authority in a folder of the caller's.
class TestAuthority {
 public:
  TestAuthority(std::string folder, const std::string& name)
      : folder_(std::move(folder)), ca_(absl::StrCat(folder_, "/", name)) {
    Run({"-keyout", ca_ + ".key", "-out", certificate(), "-subj", "/CN=" + name});
  }

  std::string certificate() const { return ca_ + ".crt"; }

  // `<stem>.crt` and `<stem>.key`, for the name or address `of`; replaces those there are in one step each.
  void Issue(const std::string& stem, const std::string& of) const {
    const std::string fresh = stem + ".new";
    Run({"-keyout", fresh + ".key", "-out", fresh + ".crt", "-subj", "/CN=coordinator", "-CA", certificate(),
         "-CAkey", ca_ + ".key", "-addext", "subjectAltName=" + of, "-addext", "basicConstraints=CA:FALSE"});
    for (const char* end : {".key", ".crt"}) std::filesystem::rename(fresh + end, stem + end);
  }

 private:
  static void Run(const std::vector<std::string>& arguments) {
    std::vector<std::string> command = {
        "openssl", "req",   "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
        "-nodes",  "-days", "2"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    const auto result = RunCommand(command, absl::Now() + absl::Seconds(30));
    REQUIRE(result.ok());
    INFO(result->output);
    REQUIRE(result->exit_code == 0);
  }

  const std::string folder_, ca_;
};

}  // namespace lunkeeper

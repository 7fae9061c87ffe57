#include "plugin/certificate_report.h"

#include <catch2/catch.hpp>

#include "absl/strings/str_split.h"
#include "base/testing/captured_log.h"
#include "base/testing/test_host.h"
#include "base/tls.h"
#include "plugin/testing/certificates.h"

namespace lunkeeper {

TEST_CASE("of a certificate's last two weeks the log has a warning each day, and the metric its end") {
  const testing::TempDir folder;
  const TestAuthority authority(folder.path(), "ca");
  const std::string stem = folder.path() + "/own", file = stem + ".crt";
  authority.Issue(stem, "IP:127.0.0.1");
  const auto end = CertificateEnds(file);
  REQUIRE(end.ok());
  Metrics metrics("controller");
  CertificateReport report;
  const auto count = [&](absl::Duration before) {
    const testing::CapturedLog log(folder.path() + "/log");
    report.ReportEnds({[&] {
                        return std::vector<std::string>{file, "/nowhere.crt"};
                      }},
                      *end - before, metrics);
    return std::vector<std::string>(absl::StrSplit(log.Text(), "ends soon")).size() - 1;
  };
  CHECK(count(absl::Hours(24 * 15)) == 0);
  CHECK(count(absl::Hours(24 * 13)) == 1);
  CHECK(count(absl::Hours(24 * 13 - 1)) == 0);
  CHECK(count(absl::Hours(24 * 12)) == 1);
  CHECK(count(absl::Hours(24 * 12 + 6)) == 1);  // the clock was set back
  CHECK(count(-absl::Hours(24)) == 1);
  CHECK_THAT(metrics.ToText(), Catch::Contains("lunkeeper_certificate_end_seconds{"));
  CHECK_THAT(metrics.ToText(), Catch::Contains("{file=\"/nowhere.crt\"} 0"));
}

}  // namespace lunkeeper

// LIO, the kernel's own target, set up by writes to configfs as targetcli makes them. For the guest: it is
// the machine's, and not of one process.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <vector>

#include "base/testing/test_host.h"
#include "base/unique_fd.h"
#include "devices/iscsi/testing/other_target.h"

namespace lunkeeper {
namespace {

constexpr char kConfiguration[] = "/sys/kernel/config/target/";

class Lio final : public OtherTarget {
 public:
  explicit Lio(const OtherSettings& settings) {
    MakeFolder("core/fileio_0");
    for (const char* lun : {"0", "1"}) MakeDisk(lun, settings.cache);
    MakeFolder("iscsi");
    MakeGroup(settings);
    StartServing();
  }
  // What was made last goes first.
  ~Lio() override {
    std::ofstream(kConfiguration + Group("enable")) << "0";
    for (const std::string& link : links_) ::unlink(link.c_str());
    for (auto at = folders_.rbegin(); at != folders_.rend(); ++at) ::rmdir(at->c_str());
  }
  uint16_t port() const override { return port_; }
  void Stop() override { Put(Group("enable"), "0"); }
  void StartServing() override { Put(Group("enable"), "1"); }

 private:
  static std::string Group(const std::string& name) {
    return "iscsi/" + std::string(kOtherTarget) + "/tpgt_1/" + name;
  }

  void MakeDisk(const std::string& lun, bool cache) {
    const std::string image = directory_ / "image" + lun, disk = "core/fileio_0/disk" + lun;
    const UniqueFd file(::open(image.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
    REQUIRE(::ftruncate(file.get(), kOtherSize) == 0);
    MakeFolder(disk);
    Put(disk + "/control", "fd_dev_name=" + image + ",fd_dev_size=" + std::to_string(kOtherSize) +
                               (cache ? ",fd_buffered_io=1" : ""));
    Put(disk + "/wwn/vpd_unit_serial", SerialOf(std::stoul(lun)));
    Put(disk + "/enable", "1");
    for (const char* command : {"tpu", "tpws"}) Put(disk + "/attrib/emulate_" + command, cache ? "1" : "0");
  }

  void MakeGroup(const OtherSettings& settings) {
    MakeFolder("iscsi/" + std::string(kOtherTarget));
    MakeFolder(Group(""));
    MakeFolder(Group("np/" + portal()));
    for (const char* lun : {"0", "1"}) {
      MakeFolder(Group("lun/lun_") + lun);
      links_.push_back(kConfiguration + Group("lun/lun_") + lun + "/disk");
      const std::string disk = kConfiguration + std::string("core/fileio_0/disk") + lun;
      REQUIRE(::symlink(disk.c_str(), links_.back().c_str()) == 0);
    }
    Put(Group("attrib/generate_node_acls"), "1");
    Put(Group("attrib/demo_mode_write_protect"), "0");
    Put(Group("attrib/authentication"), settings.chap.user.empty() ? "0" : "1");
    if (!settings.solicited) Put(Group("param/InitialR2T"), "No");
    if (!settings.solicited) Put(Group("param/FirstBurstLength"), "262144");
    if (settings.chap.user.empty()) return;
    Put(Group("auth/userid"), settings.chap.user);
    Put(Group("auth/password"), settings.chap.secret);
    if (settings.target_chap.secret.empty()) return;
    Put(Group("auth/userid_mutual"), settings.target_chap.user);
    Put(Group("auth/password_mutual"), settings.target_chap.secret);
  }

  void MakeFolder(const std::string& name) {
    folders_.push_back(kConfiguration + name);
    CAPTURE(folders_.back());
    REQUIRE((::mkdir(folders_.back().c_str(), 0755) == 0 || errno == EEXIST));
  }
  static void Put(const std::string& name, const std::string& value) {
    CAPTURE(name, value);
    std::ofstream file(kConfiguration + name);
    REQUIRE((file << value << std::flush));
  }

  const testing::TempDir directory_{"/dev/shm"};
  const uint16_t port_ = testing::FreePort();
  std::vector<std::string> folders_, links_;
};

}  // namespace

std::unique_ptr<OtherTarget> StartLio(const OtherSettings& settings) {
  return std::make_unique<Lio>(settings);
}

}  // namespace lunkeeper

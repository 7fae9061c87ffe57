// The data path alone, as the tests run it; takes the same command line as `lunkeeper datapath`.

#include <CLI/CLI.hpp>

#include "devices/datapath/datapath.h"

int main(int argc, char** argv) {
  CLI::App app("lunkeeper's data path");
  lunkeeper::DatapathOptions options;
  CLI::App* command = app.add_subcommand("datapath", "Serves volumes");
  lunkeeper::AddDatapathOptions(command, &options);
  app.require_subcommand(1);
  CLI11_PARSE(app, argc, argv);
  return lunkeeper::RunDatapath(options);
}

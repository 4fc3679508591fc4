# The configuration's sources, and what its checks need: part of the room `train`, and compiled into its own light test.
set(RONDO_TRAIN_CONFIG_SOURCES
  ${CMAKE_CURRENT_LIST_DIR}/src/config.cpp
  ${CMAKE_CURRENT_LIST_DIR}/src/config_check.cpp
  ${CMAKE_CURRENT_LIST_DIR}/src/config_completion.cpp
  ${CMAKE_CURRENT_LIST_DIR}/src/config_help.cpp
  ${CMAKE_CURRENT_LIST_DIR}/src/config_import.cpp
  ${CMAKE_CURRENT_LIST_DIR}/src/config_import_axolotl.cpp
  ${CMAKE_CURRENT_LIST_DIR}/src/config_import_common.cpp
  ${CMAKE_CURRENT_LIST_DIR}/src/config_import_factory.cpp
  ${CMAKE_CURRENT_LIST_DIR}/src/config_keys.cpp
  ${CMAKE_CURRENT_LIST_DIR}/src/config_man.cpp
  ${CMAKE_CURRENT_LIST_DIR}/src/config_sweep.cpp
  ${CMAKE_CURRENT_LIST_DIR}/src/config_table.cpp
  ${CMAKE_CURRENT_LIST_DIR}/src/config_text.cpp
  ${CMAKE_CURRENT_LIST_DIR}/src/config_value.cpp
  ${CMAKE_CURRENT_LIST_DIR}/src/config_yaml.cpp
  ${CMAKE_CURRENT_LIST_DIR}/src/rate.cpp)

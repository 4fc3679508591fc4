# rondo_room(NAME <room> [DEPENDS <room>...] [PACKAGES <target>...] SOURCES <file>...)
#
# Declares the library rondo_<room> with the alias rondo::<room>. Headers live in include/ below the calling folder, sources
# in src/. DEPENDS are the only edges between rooms; PACKAGES are outside libraries that only this room's sources see.
add_library(rondo_options INTERFACE)
target_compile_options(rondo_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion
  -Woverloaded-virtual)
if(RONDO_WARNINGS_AS_ERRORS)
  target_compile_options(rondo_options INTERFACE -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 sees overlapping copies in std::string's operator+ that are not there (GCC bug 105651).
  target_compile_options(rondo_options INTERFACE -Wno-restrict)
endif()
if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Sources that are compiled together look like headers to it, where types without linkage would be a mistake.
  target_compile_options(rondo_options INTERFACE -Wno-subobject-linkage)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  target_compile_options(rondo_options INTERFACE -Wthread-safety -Wreserved-identifier)
endif()
if(RONDO_SANITIZERS)
  target_compile_options(rondo_options INTERFACE -fsanitize=${RONDO_SANITIZERS} -fno-sanitize-recover=all
                                                 -fno-omit-frame-pointer)
  target_link_options(rondo_options INTERFACE -fsanitize=${RONDO_SANITIZERS})
endif()
if(RONDO_CLANG_TIDY)
  find_program(RONDO_CLANG_TIDY_PROGRAM NAMES clang-tidy clang-tidy-14 REQUIRED)
  add_custom_target(tidy)  # all rooms; nothing is linked, as tidy.sh leaves no objects
endif()

function(rondo_room)
  cmake_parse_arguments(ROOM "" "NAME" "DEPENDS;PACKAGES;SOURCES" ${ARGN})
  add_library(rondo_${ROOM_NAME} STATIC ${ROOM_SOURCES})
  add_library(rondo::${ROOM_NAME} ALIAS rondo_${ROOM_NAME})
  target_include_directories(rondo_${ROOM_NAME} PUBLIC ${CMAKE_CURRENT_SOURCE_DIR}/include
                             PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/src)
  target_link_libraries(rondo_${ROOM_NAME} PRIVATE rondo_options ${ROOM_PACKAGES})
  foreach(dependency IN LISTS ROOM_DEPENDS)
    target_link_libraries(rondo_${ROOM_NAME} PUBLIC rondo::${dependency})
  endforeach()
  if(RONDO_CLANG_TIDY)
    set_target_properties(rondo_${ROOM_NAME} PROPERTIES CXX_COMPILER_LAUNCHER
                          "${PROJECT_SOURCE_DIR}/cmake/tidy.sh;${RONDO_CLANG_TIDY_PROGRAM}")
    add_dependencies(tidy rondo_${ROOM_NAME})
  endif()
endfunction()

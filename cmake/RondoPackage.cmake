# What is installed beside the program, and the Debian package.
#
# The manual page and the completions are written by the program itself, from its table of keys, as part of the build.
#   cmake --install BUILD --prefix DIR
#   cpack --config BUILD/CPackConfig.cmake -G DEB      scripts/package.sh does it, and packs the portable tarball
include(GNUInstallDirs)
set(manual_dir ${CMAKE_BINARY_DIR}/manual)
file(MAKE_DIRECTORY ${manual_dir})
add_custom_command(
  OUTPUT ${manual_dir}/rondo.1 ${manual_dir}/rondo.bash ${manual_dir}/_rondo ${manual_dir}/rondo.fish
  COMMAND rondo man > ${manual_dir}/rondo.1
  COMMAND rondo completion bash > ${manual_dir}/rondo.bash
  COMMAND rondo completion zsh > ${manual_dir}/_rondo
  COMMAND rondo completion fish > ${manual_dir}/rondo.fish
  DEPENDS rondo
  COMMENT "Writing the manual page and the completions")
add_custom_target(rondo_manual ALL DEPENDS ${manual_dir}/rondo.1 ${manual_dir}/rondo.bash ${manual_dir}/_rondo
                                           ${manual_dir}/rondo.fish)

# Libraries that the portable tarball brings along lie in lib/rondo; where there are none, the system's serve. The older kind
# of entry, which counts for the libraries of libraries too.
set_target_properties(rondo PROPERTIES INSTALL_RPATH "$ORIGIN/../lib/rondo")
target_link_options(rondo PRIVATE -Wl,--disable-new-dtags)

install(TARGETS rondo RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES ${manual_dir}/rondo.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${manual_dir}/rondo.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME rondo)
# zsh looks into the one below /usr/local and into the other below /usr.
install(FILES ${manual_dir}/_rondo DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${manual_dir}/_rondo DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
install(FILES ${manual_dir}/rondo.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
install(FILES ${CMAKE_SOURCE_DIR}/README.md DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/rondo)
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/rondo RENAME copyright)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/examples DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/rondo)

set(CPACK_PACKAGE_NAME rondo)
set(CPACK_PACKAGE_VENDOR "The Rondo authors")
set(CPACK_PACKAGE_CONTACT "The Rondo authors <rondo@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "fine-tune language models on the devices of one machine")
set(CPACK_PACKAGE_DESCRIPTION "Rondo trains adapters or every weight of language models from Hugging Face directories,
on the CPU and on graphics cards, which may differ from each other. It is one program without Python.")
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_GENERATOR DEB)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# Found at run time, so that nothing links them: the line editor, and what speaks to cards.
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "libedit2, libvulkan1")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "mesa-vulkan-drivers")
include(CPack)

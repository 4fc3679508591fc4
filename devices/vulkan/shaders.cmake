# Compiles shaders/*/*.comp to SPIR-V and writes each as an array into all_shaders.inc's parts.
set(RONDO_VULKAN_SHADERS
    attention/attention attention/attention_delta attention/attention_key_gradient attention/attention_key_panels
    attention/attention_key_units attention/attention_panels attention/attention_query_gradient
    attention/attention_query_panels attention/attention_query_units attention/attention_sink
    attention/attention_units attention/cache_store attention/panel_rows attention/panel_stats
    delta/convolution delta/convolution_backward delta/decay delta/delta_gate_gradient delta/delta_key_gradient
    delta/delta_rule delta/delta_rule_eights delta/delta_step delta/delta_value_gradient
    delta/delta_value_gradient_eights
    experts/expert_combine experts/expert_combine_backward experts/expert_dispatch experts/grouped_bias
    experts/grouped_bias_gradient experts/route experts/route_backward experts/route_backward_eights
    experts/route_eights experts/route_rows experts/route_rows_eights experts/share_scale experts/share_scale_gradient
    products/largest products/loss_sum products/matmul products/matmul_cooperative products/matmul_few
    products/matmul_grouped products/matmul_narrow products/matmul_panels products/panel products/targets products/vocabulary
    rows/column_scale rows/column_sums rows/column_total rows/elementwise rows/embedding rows/embedding_chain
    rows/embedding_chain_eights rows/embedding_rank rows/embedding_rank_eights rows/embedding_rows rows/expand
    rows/hadamard_encode rows/hadamard_encode_eights rows/hadamard_expand rows/head_part
    rows/join_heads rows/magnitude rows/norm rows/norm_backward rows/norm_backward_eights
    rows/norm_eights rows/noise rows/rope rows/select_last
    update/adamw update/adamw_eights update/add_rows update/sum_of_squares update/sum_of_squares_doubles)
file(GLOB shader_headers CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/shaders/*.glsl
     ${CMAKE_CURRENT_SOURCE_DIR}/shaders/*/*.glsl)
set(shader_folder ${CMAKE_CURRENT_BINARY_DIR}/shaders)
file(MAKE_DIRECTORY ${shader_folder})
set(all_shaders "")
set(shader_files "")
foreach(place IN LISTS RONDO_VULKAN_SHADERS)
  set(source ${CMAKE_CURRENT_SOURCE_DIR}/shaders/${place}.comp)
  get_filename_component(shader ${place} NAME)
  set(words ${shader_folder}/${shader}.words)
  add_custom_command(OUTPUT ${words} DEPENDS ${source} ${shader_headers}
                     COMMAND ${GLSLC} -O --target-env=vulkan1.2 -Werror -mfmt=num
                             -I${CMAKE_CURRENT_SOURCE_DIR}/shaders -o ${words} ${source}
                     COMMENT "Compiling shader ${shader}" VERBATIM)
  list(APPEND shader_files ${words})
  string(APPEND all_shaders "constexpr std::uint32_t ${shader}_words[] = {\n#include \"${shader}.words\"\n};\n")
endforeach()
file(CONFIGURE OUTPUT ${shader_folder}/all_shaders.inc CONTENT "${all_shaders}" @ONLY)
add_custom_target(rondo_vulkan_shaders DEPENDS ${shader_files})
set_source_files_properties(src/shaders.cpp PROPERTIES OBJECT_DEPENDS "${shader_files}")

add_library(rondo_vulkan_headers INTERFACE)
target_include_directories(rondo_vulkan_headers SYSTEM INTERFACE ${VULKAN_INCLUDE_DIR})
target_include_directories(rondo_vulkan_headers INTERFACE ${shader_folder})
target_link_libraries(rondo_vulkan_headers INTERFACE ${CMAKE_DL_LIBS})

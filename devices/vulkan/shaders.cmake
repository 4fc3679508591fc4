# Compiles shaders/*.comp to SPIR-V and writes each as an array into all_shaders.inc's parts.
set(RONDO_VULKAN_SHADERS
    adamw add_rows attention attention_delta attention_key_gradient attention_key_panels attention_key_units attention_panels
    attention_query_gradient attention_query_panels attention_query_units attention_sink attention_units cache_store column_scale column_sums
    column_total convolution convolution_backward decay delta_gate_gradient delta_key_gradient delta_rule delta_rule_eights delta_value_gradient delta_value_gradient_eights elementwise embedding embedding_chain embedding_rank embedding_rows expand expert_combine expert_combine_backward expert_dispatch grouped_bias grouped_bias_gradient hadamard_encode hadamard_expand head_part join_heads largest loss_sum magnitude matmul matmul_cooperative matmul_grouped matmul_narrow matmul_panels panel panel_rows panel_stats
    rms_norm rms_norm_backward rms_norm_backward_eights rms_norm_eights rope route route_backward route_backward_eights route_eights route_rows route_rows_eights
    select_last share_scale share_scale_gradient sum_of_squares sum_of_squares_doubles targets vocabulary)
file(GLOB shader_headers CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/shaders/*.glsl)
set(shader_folder ${CMAKE_CURRENT_BINARY_DIR}/shaders)
file(MAKE_DIRECTORY ${shader_folder})
set(all_shaders "")
set(shader_files "")
foreach(shader IN LISTS RONDO_VULKAN_SHADERS)
  set(source ${CMAKE_CURRENT_SOURCE_DIR}/shaders/${shader}.comp)
  set(words ${shader_folder}/${shader}.words)
  add_custom_command(OUTPUT ${words} DEPENDS ${source} ${shader_headers}
                     COMMAND ${GLSLC} -O --target-env=vulkan1.2 -Werror -mfmt=num -o ${words} ${source}
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

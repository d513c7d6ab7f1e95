/* Published configs: the fields that decide the rope, and nothing else of the files. What follows the
   equals sign is JSON, which Python reads too. */

/** @type {Record<string, {name: string, config: Record<string, any>}>} */
export const PUBLISHED = {
"llama-2-7b": {
  "name": "meta-llama/Llama-2-7b-hf",
  "config": {"model_type": "llama", "hidden_size": 4096, "max_position_embeddings": 4096, "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32}
},
"codellama-7b": {
  "name": "codellama/CodeLlama-7b-hf",
  "config": {"model_type": "llama", "hidden_size": 4096, "max_position_embeddings": 16384, "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32, "rope_theta": 1000000}
},
"llama-3-8b": {
  "name": "meta-llama/Meta-Llama-3-8B",
  "config": {"model_type": "llama", "hidden_size": 4096, "max_position_embeddings": 8192, "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "rope_theta": 500000.0}
},
"llama-3.1-8b-instruct": {
  "name": "meta-llama/Llama-3.1-8B-Instruct",
  "config": {"model_type": "llama", "hidden_size": 4096, "max_position_embeddings": 131072, "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"}, "rope_theta": 500000.0}
},
"qwen2.5-3b-instruct": {
  "name": "Qwen/Qwen2.5-3B-Instruct",
  "config": {"model_type": "qwen2", "hidden_size": 2048, "max_position_embeddings": 32768, "num_attention_heads": 16, "num_hidden_layers": 36, "num_key_value_heads": 2, "rope_theta": 1000000.0, "sliding_window": 32768}
},
"qwen3-0.6b": {
  "name": "Qwen/Qwen3-0.6B",
  "config": {"model_type": "qwen3", "head_dim": 128, "hidden_size": 1024, "max_position_embeddings": 40960, "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8, "rope_theta": 1000000}
},
"qwen2.5-vl-7b-instruct": {
  "name": "Qwen/Qwen2.5-VL-7B-Instruct",
  "config": {"model_type": "qwen2_5_vl", "hidden_size": 3584, "max_position_embeddings": 128000, "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4, "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}, "rope_theta": 1000000.0}
},
"mistral-7b-v0.1": {
  "name": "mistralai/Mistral-7B-v0.1",
  "config": {"model_type": "mistral", "hidden_size": 4096, "max_position_embeddings": 32768, "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "rope_theta": 10000.0, "sliding_window": 4096}
},
"gemma-3-1b-it": {
  "name": "google/gemma-3-1b-it",
  "config": {"model_type": "gemma3_text", "head_dim": 256, "hidden_size": 1152, "max_position_embeddings": 32768, "num_attention_heads": 4, "num_hidden_layers": 26, "num_key_value_heads": 1, "rope_local_base_freq": 10000, "rope_theta": 1000000, "sliding_window": 512, "sliding_window_pattern": 6}
},
"phi-3-mini-128k-instruct": {
  "name": "microsoft/Phi-3-mini-128k-instruct",
  "config": {"model_type": "phi3", "hidden_size": 3072, "max_position_embeddings": 131072, "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32, "original_max_position_embeddings": 4096, "rope_scaling": {"long_factor": [1.0700000524520874, 1.1200000047683716, 1.149999976158142, 1.4199999570846558, 1.5699999332427979, 1.7999999523162842, 2.129999876022339, 2.129999876022339, 3.009999990463257, 5.910000324249268, 6.950000286102295, 9.070000648498535, 9.930000305175781, 10.710000038146973, 11.130000114440918, 14.609999656677246, 15.409998893737793, 19.809999465942383, 37.279998779296875, 38.279998779296875, 38.599998474121094, 40.12000274658203, 46.20000457763672, 50.940006256103516, 53.66000747680664, 54.9373893737793, 56.89738845825195, 57.28738784790039, 59.98738479614258, 60.86738586425781, 60.887386322021484, 61.71739196777344, 62.91739273071289, 62.957393646240234, 63.41739273071289, 63.8173942565918, 63.83739471435547, 63.897396087646484, 63.93739700317383, 64.06739807128906, 64.11434936523438, 64.12435150146484, 64.15435028076172, 64.19435119628906, 64.24435424804688, 64.57435607910156, 64.69000244140625, 64.76000213623047], "short_factor": [1.1, 1.1, 1.1, 1.3000000000000003, 1.3500000000000003, 1.3500000000000003, 1.4000000000000004, 1.5500000000000005, 2.000000000000001, 2.000000000000001, 2.000000000000001, 2.000000000000001, 2.000000000000001, 2.000000000000001, 2.000000000000001, 2.000000000000001, 2.000000000000001, 2.000000000000001, 2.000000000000001, 2.000000000000001, 2.000000000000001, 2.000000000000001, 2.000000000000001, 2.000000000000001, 2.000000000000001, 2.0500000000000007, 2.0500000000000007, 2.0500000000000007, 2.0500000000000007, 2.0500000000000007, 2.0500000000000007, 2.1000000000000005, 2.1000000000000005, 2.1500000000000004, 2.25, 2.25, 2.25, 2.25, 2.25, 2.3999999999999995, 2.4499999999999993, 2.499999999999999, 2.6999999999999984, 2.6999999999999984, 2.7499999999999982, 2.799999999999998, 2.8999999999999977, 3.049999999999997], "type": "longrope"}, "rope_theta": 10000.0, "sliding_window": 262144}
},
"gpt-oss-20b": {
  "name": "openai/gpt-oss-20b",
  "config": {"model_type": "gpt_oss", "head_dim": 64, "hidden_size": 2880, "initial_context_length": 4096, "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention"], "max_position_embeddings": 131072, "num_attention_heads": 64, "num_hidden_layers": 24, "num_key_value_heads": 8, "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 4096, "rope_type": "yarn", "truncate": false}, "rope_theta": 150000, "sliding_window": 128}
},
"deepseek-v3": {
  "name": "deepseek-ai/DeepSeek-V3",
  "config": {"model_type": "deepseek_v3", "hidden_size": 7168, "kv_lora_rank": 512, "max_position_embeddings": 163840, "num_attention_heads": 128, "num_hidden_layers": 61, "num_key_value_heads": 128, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096, "type": "yarn"}, "rope_theta": 10000}
},
"gpt-neox-20b": {
  "name": "EleutherAI/gpt-neox-20b",
  "config": {"model_type": "gpt_neox", "hidden_size": 6144, "max_position_embeddings": 2048, "num_attention_heads": 64, "num_hidden_layers": 44, "rotary_emb_base": 10000, "rotary_pct": 0.25}
}
};

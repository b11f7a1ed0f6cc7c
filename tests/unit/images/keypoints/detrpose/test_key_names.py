"""Names of the authors' parameters, all of one state, become the network's."""

import numpy as np

from paddlevit_dist.images.keypoints.detrpose.key_names import DETRPOSE

RENAMED = {
    "backbone.stem.stem1.conv.weight": "backbone.stem.stem1.conv.weight",
    "encoder.encoder.0.layers.0.linear2.weight": "encoder.aifi.0.layers.0.mlp.fc2.weight",
    "encoder.fpn_blocks.0.cv4.conv.weight": "encoder.fpn_blocks.0.conv4.conv.weight",
    "transformer.decoder.layers.10.across_attn.out_proj.weight": "decoder.layers.10.across_attn.o_proj.weight",
    "transformer.decoder.layers.0.within_attn.out_proj.bias": "decoder.layers.0.within_attn.o_proj.bias",
    "transformer.decoder.layers.1.cross_attn.value_proj.bias": "decoder.layers.1.cross_attn.value_proj.bias",
    "transformer.decoder.layers.3.linear1.weight": "decoder.layers.3.mlp.fc1.weight",
    "transformer.decoder.layers.3.linear2.bias": "decoder.layers.3.mlp.fc2.bias",
    "transformer.decoder.layers.0.norm2.weight": "decoder.layers.0.final_norm.weight",
    "transformer.decoder.layers.0.within_norm.weight": "decoder.layers.0.within_norm.weight",
    "transformer.decoder.half_pose_ref_point_head.layers.1.bias": "decoder.query_pos_head.layers.1.bias",
    "transformer.pre_pose_embed.layers.2.bias": "decoder.pre_pose_head.layers.2.bias",
    "transformer.lqe_embed.1.reg_conf.layers.0.weight": "decoder.lqe_layers.1.reg_conf.layers.0.weight",
    "transformer.class_embed.4.bias": "decoder.class_embed.4.bias",
    "transformer.pose_embed.4.layers.0.weight": "decoder.pose_embed.4.layers.0.weight",
    "transformer.enc_output.weight": "enc_output.0.weight",
    "transformer.enc_output_norm.bias": "enc_output.1.bias",
    "transformer.enc_out_class_embed.bias": "enc_score_head.bias",
    "transformer.enc_pose_embed.layers.3.weight": "enc_pose_head.layers.3.weight",
    "transformer.label_enc.weight": "denoising_class_embed.weight",
    "transformer.pose_enc.weight": "denoising_pose_embed.weight",
    "transformer.tgt_embed.weight": "tgt_embed.weight",
}
COMPUTED = "anchors valid_mask decoder.dim_t decoder.up decoder.reg_scale"


def test_a_state_of_the_authors_has_the_names_of_the_network():
    state = {name: np.full(6, number) for number, name in enumerate(RENAMED)}
    state |= {f"transformer.{name}": np.ones(2) for name in COMPUTED.split()}
    joint = {"transformer.decoder.layers.2.within_attn.in_proj_bias": np.arange(6.0)}
    found = DETRPOSE["the authors'"]({**state, **joint})
    parts = {
        f"decoder.layers.2.within_attn.{part}_proj.bias": np.arange(k, k + 2)
        for k, part in ((0, "q"), (2, "k"), (4, "v"))
    }
    expected = {new: np.full(6, number) for number, new in enumerate(RENAMED.values())} | parts
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)

"""How an encoding gives each layer its site: one for all layers, or one for each."""

from __future__ import annotations

from torch import nn

from ropewalk.encodings.interface import AttentionEncoding, Encoding


class SharedSite(Encoding):
    """An encoding with one site, which all layers share."""

    shared: AttentionEncoding

    def for_layer(self, layer: int) -> AttentionEncoding:
        return self.shared


class LayerSites(Encoding):
    """An encoding with a site for each layer, or with a single one; sites may share parameters."""

    sites: nn.ModuleList

    def for_layer(self, layer: int) -> AttentionEncoding:
        site = self.sites[layer if len(self.sites) > 1 else 0]
        assert isinstance(site, AttentionEncoding)
        return site

package org.sealbus.jade;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

/** Patterns of channels and rules about them, as the crate {@code channels} has them. */
class ChannelRulesTest {
    private static ChannelSubscription to(String pattern) {
        return new ChannelSubscription(null, 1, "ear", pattern, SubscriptionOptions.EVENTS);
    }

    @Test
    void patternsMatchAsElsewhere() {
        assertTrue(ChannelSubscription.matches("/dates/business", "/dates/business"));
        assertTrue(ChannelSubscription.matches("/dates/*", "/dates/business"));
        assertTrue(ChannelSubscription.matches("/dates/**", "/dates"));
        assertTrue(ChannelSubscription.matches("/dates/**", "/dates/business/today"));
        assertFalse(ChannelSubscription.matches("/dates/*", "/dates"));
        assertFalse(ChannelSubscription.matches("/dates/*", "/dates/business/today"));
        assertFalse(ChannelSubscription.matches("/dates/business", "/dates/Business"));
        assertFalse(ChannelSubscription.matches("/dates/*/today", "/dates/business/tomorrow"));
    }

    @Test
    void whatIsNoPatternIsRefused() {
        assertEquals("/dates/*/today/**", to("/dates/*/today/**").pattern());
        String tooDeep = "/a".repeat(17);
        String tooLong = "/" + "a".repeat(129);
        for (String wrong : new String[] {"", "dates", "/", "/dates/", "/a//b", "/a/../b", "/a/b*", "/**/a", "/a b", tooDeep, tooLong}) {
            assertThrows(IllegalArgumentException.class, () -> to(wrong), wrong);
        }
    }

    @Test
    void theFirstRuleThatMatchesDecides() {
        Permission permission = new Permission("factory", "node-1", Json.read("""
                {"permission": {"groups": {"sellers": ["seller-1", "seller-2@factory"]}, "rule": [], "channel": [
                    {"allow": {"agents": ["sellers"], "do": ["publish"], "on": ["/prices/**"]}},
                    {"deny": {"agents": ["*"], "do": ["publish"], "on": ["/prices/**"]}}]}}"""));
        assertTrue(permission.may("seller-1", "publish", "/prices/tea"));
        assertTrue(permission.may("seller-2", "publish", "/prices/tea"));
        assertFalse(permission.may("buyer", "publish", "/prices/tea"));
        assertTrue(permission.may("buyer", "subscribe", "/prices/tea"));
        assertTrue(permission.may("buyer", "publish", "/elsewhere"));
        // Here all agents includes the platform's own.
        assertFalse(permission.may("operator", "publish", "/prices/tea"));
    }
}

package org.sealbus.jade;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import org.junit.jupiter.api.Test;

/** Rules for messages, as the crate {@code seal} has them. */
class PermissionTest {
    private static Permission policy(String groups, String rules) {
        return new Permission("factory", "node-1", Json.read("{\"permission\": {\"groups\": {" + groups + "}, \"rule\": [" + rules
                + "], \"channel\": []}}"));
    }

    private static boolean may(Permission permission, String sender, String receiver, String... askers) {
        List<String> all = List.of(askers).stream().map(PermissionTest::whole).toList();
        return permission.permits(whole(sender), whole(receiver), all);
    }

    private static String whole(String name) {
        return name.contains("@") ? name : name + "@factory";
    }

    @Test
    void rulesSayOnWhoseBehalfAnAgentMayAsk() {
        Permission rules = policy("\"directors\": [\"boss\", \"deputy\"]", """
                {"allow": {"from": ["clerk"], "to": ["vault"], "on-behalf-of": ["directors"]}},
                {"deny": {"from": ["clerk"], "to": ["vault"]}},
                {"deny": {"from": ["*"], "to": ["safe"], "on-behalf-of": ["*"]}},
                {"deny": {"from": ["*"], "to": ["desk"], "on-behalf-of": ["stranger", "guest@elsewhere"]}}""");
        assertTrue(may(rules, "clerk", "vault", "boss"));
        assertTrue(may(rules, "clerk", "vault", "boss", "deputy"));
        // One who may not is enough.
        assertFalse(may(rules, "clerk", "vault", "boss", "stranger"));
        assertFalse(may(rules, "clerk", "vault"));
        assertTrue(may(rules, "clerk", "safe"));
        assertFalse(may(rules, "clerk", "safe", "boss"));
        // On behalf of everybody includes the platform's own agents.
        assertFalse(may(rules, "clerk", "safe", "operator"));
        assertTrue(may(rules, "clerk", "desk", "boss"));
        assertFalse(may(rules, "clerk", "desk", "boss", "stranger", "deputy"));
        assertFalse(may(rules, "clerk", "desk", "guest@elsewhere"));
        assertTrue(may(rules, "clerk", "desk", "guest"));
        assertTrue(may(rules, "other", "vault", "stranger"));
    }

    @Test
    void aRuleForThoseWhoAskForOthersIsNoRuleForEverybody() {
        Permission open = policy("", """
                {"allow": {"from": ["clerk"], "to": ["vault"], "on-behalf-of": ["boss"]}},
                {"deny": {"from": ["*"], "to": ["vault"]}}""");
        assertFalse(may(open, "clerk", "vault"));
        Permission closed = policy("", "{\"deny\": {\"from\": [\"*\"], \"to\": [\"*\"], \"on-behalf-of\": [\"guest\"]}}");
        assertTrue(may(closed, "clerk", "vault"));
        assertFalse(may(closed, "clerk", "vault", "guest"));
        Permission nobody = policy("", "{\"deny\": {\"from\": [\"*\"], \"to\": [\"*\"], \"on-behalf-of\": []}}");
        assertTrue(may(nobody, "clerk", "vault", "guest"));
    }

    @Test
    void rulesForAllAgentsDoNotMeanThePlatformsOwn() {
        Permission rules = policy("\"df\": [\"seller\"]", """
                {"deny": {"from": ["operator"], "to": ["seller"]}},
                {"deny": {"from": ["*"], "to": ["*", "ams"]}}""");
        for (String service : new String[] {"master", "ca", "ams", "df", "operator", "node-1"}) {
            assertTrue(may(rules, "buyer", service), service);
            assertTrue(may(rules, service, "buyer"), service);
        }
        assertFalse(may(rules, "operator", "seller"));
        assertFalse(may(rules, "buyer", "seller"));
        assertFalse(may(rules, "buyer", "node-2"));
        // The name of a group stands for its members.
        Permission group = policy("\"df\": [\"seller\"]", "{\"deny\": {\"from\": [\"df\"], \"to\": [\"vault\"]}}");
        assertFalse(may(group, "seller", "vault"));
        assertTrue(may(group, "df", "vault"));
    }
}

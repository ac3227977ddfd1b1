package org.sealbus.jade;

import jade.core.AID;
import jade.core.Agent;
import jade.core.AgentContainer;
import jade.core.BaseService;
import jade.core.Filter;
import jade.core.Profile;
import jade.core.ProfileException;
import jade.core.ServiceHelper;
import jade.core.VerticalCommand;
import jade.core.event.NotificationSlice;
import jade.core.management.AgentManagementSlice;
import jade.core.messaging.GenericMessage;
import jade.core.messaging.MessagingSlice;
import jade.lang.acl.ACLMessage;
import java.io.IOException;
import java.security.GeneralSecurityException;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.logging.Level;
import java.util.logging.Logger;

/**
 * Agents of JADE as agents of the Sealbus platform: each one that the container's ticket names has a key and a certificate of its
 * own, and writes to agents of Sealbus, and they to it, directly. {@link SealbusICP} starts this service when the ticket names
 * agents beside the container.
 *
 * <p>An agent {@code greeter@jade} of JADE is {@code greeter@factory} on the Sealbus platform {@code factory}. An agent of
 * Sealbus is {@code seller@factory} on both.
 */
public final class SealbusService extends BaseService implements Mesh.Agents, Post.Agents {
    /** The parameter that tells an agent of JADE how the sender of a message is known: {@link #PROVED} or {@link #FOREIGN}. */
    public static final String PROVENANCE = "X-Sealbus-provenance";
    /** The sender has proved itself by its certificate. */
    public static final String PROVED = "proved";
    /** The sender is of another platform, and came through this platform's gateway. Its name is only claimed. */
    public static final String FOREIGN = "foreign";

    private static final Logger LOG = Logger.getLogger("org.sealbus.jade");
    private static final String GATEWAY = "gateway";
    private static final String AMS = "ams";
    static final String NAME = "org.sealbus.jade.Sealbus";
    /** Messages that an agent may leave unread before its senders wait. */
    private static final int MOST_UNREAD = 1000;
    private static final String UNREAD = "it has ended and did not read it";

    private AgentContainer container;
    private Membership membership;
    /** The agents of JADE that have a name on the Sealbus platform. One has the container's own: its {@link Directory}. */
    private Set<String> names;
    /** The beginning of the reply-with of requests that the directory sends for others. Nobody can guess it. */
    private final String errand = "sealbus-" + UUID.randomUUID() + "-";
    private volatile Directory directory;
    /** Agents here that have no name on Sealbus as long as they are here: it was revoked, or the platform gave none. */
    private final Set<String> refused = ConcurrentHashMap.newKeySet();
    /** Agents here that have no name yet, because the node was away. */
    private final Set<String> late = ConcurrentHashMap.newKeySet();
    private final Filter outgoing = new Outgoing();
    private final Filter incoming = new Facts();
    private Parting parting;
    private String platform;
    private String jade;
    private Mesh mesh;
    private Post post;

    /** Made by JADE. */
    public SealbusService() {}

    @Override
    public String getName() {
        return NAME;
    }

    @Override
    public void init(AgentContainer container, Profile profile) throws ProfileException {
        super.init(container, profile);
        SealbusICP icp = SealbusICP.of(profile);
        if (icp == null) {
            throw new ProfileException("agents of JADE are agents of Sealbus only with -icps " + SealbusICP.class.getName());
        }
        this.container = container;
        parting = new Parting(container);
        membership = icp.membership();
        names = Set.copyOf(membership.agents());
        platform = membership.trust().platform();
        try {
            mesh = new Mesh(membership, this);
        } catch (IOException | GeneralSecurityException failed) {
            throw new ProfileException("the agents of this container cannot join Sealbus: " + failed.getMessage(), failed);
        }
        post = new Post(membership, this);
        icp.carries(mesh, this);
    }

    @Override
    public void boot(Profile profile) {
        jade = container.getPlatformID();
        if (jade.equals(platform)) {
            LOG.log(Level.SEVERE, "JADE''s platform has the name of the Sealbus platform, {0}: give it another one (-platform-id)",
                    platform);
        }
    }

    @Override
    public ServiceHelper getHelper(Agent agent) {
        return new SealbusHelper(this, agent);
    }

    Post post() {
        return post;
    }

    Mesh mesh() {
        return mesh;
    }

    String level() {
        return Json.text(Json.member(membership.welcome(), "platform"), "level");
    }

    @Override
    public void checkPermitted(String sender, String receiver, List<String> askers) throws Mesh.Refused {
        if (!mesh.permits(sender, receiver, askers)) {
            throw new Mesh.Refused("not-permitted", "the policy does not let " + sender + " write to " + receiver
                    + (askers.isEmpty() ? "" : " on behalf of " + String.join(", ", askers)));
        }
    }

    String platform() {
        return platform;
    }

    boolean isMain() {
        return container.getMain() != null;
    }

    /** Whether an agent of this local name has a name on the Sealbus platform when it runs here. */
    boolean isNamed(String agent) {
        return names.contains(agent);
    }

    @Override
    public boolean isPresent(String agent) {
        return mesh.isPresent(agent);
    }

    String errand() {
        return errand;
    }

    void hasDirectory(Directory made) {
        directory = made;
    }

    @Override
    public void attachedAgain() {
        if (directory != null) {
            directory.attachedAgain();
        }
    }

    @Override
    public Filter getCommandFilter(boolean direction) {
        // JADE removes the filters that it gets from here when the container ends, and ends in the midst if it has others.
        return direction == Filter.OUTGOING ? outgoing : incoming;
    }

    /** Sees what agents of this container send and read, and that they begin, end and move away. */
    private final class Outgoing extends Filter {
        Outgoing() {
            setPreferredPosition(FIRST);
        }

        @Override
        protected boolean accept(VerticalCommand command) {
            if (command.getName().equals(MessagingSlice.SEND_MESSAGE)) {
                AID receiver = (AID) command.getParam(2);
                if (platform.equals(receiver.getHap())) {
                    send((AID) command.getParam(0), ((GenericMessage) command.getParam(1)).getACLMessage(), receiver);
                    return false;
                }
            } else if (command.getName().equals(NotificationSlice.NOTIFY_RECEIVED)) {
                ACLMessage message = (ACLMessage) command.getParam(0);
                parting.read(message);
                post.read(((AID) command.getParam(1)).getLocalName(), message);
                String event = message.getUserDefinedParameter(SealbusHelper.EVENT);
                if (event != null) {
                    mesh.channels.read(((AID) command.getParam(1)).getLocalName(), event);
                }
            } else if (Parting.isBy(command)) {
                parts((AID) command.getParam(0), command.getName().equals(AgentManagementSlice.INFORM_KILLED));
            }
            return true;
        }

        @Override
        protected void postProcess(VerticalCommand command) {
            boolean isBirth = command.getName().equals(AgentManagementSlice.INFORM_CREATED);
            if (isBirth && !(command.getReturnValue() instanceof Throwable)) {
                began(((AID) command.getParam(0)).getLocalName());
            } else if (Parting.isBy(command)) {
                AID agent = (AID) command.getParam(0);
                parting.end(agent.getLocalName());
                if (!container.isLocalAgent(agent)) {
                    ended(agent.getLocalName());
                }
            }
        }
    }

    /** Agents that have moved here have their names from now on. A revoked agent has none as long as it is here. */
    void lookForArrivals() {
        for (String agent : names) {
            boolean isHere = container.isLocalAgent(new AID(agent + "@" + jade, AID.ISGUID));
            if (isHere && !refused.contains(agent) && !parting.has(agent)) {
                began(agent);
            } else if (!isHere) {
                ended(agent);
            }
        }
    }

    private synchronized void began(String agent) {
        if (!names.contains(agent) || mesh.isPresent(agent)) {
            return;
        }
        try {
            if (isContainer(agent)) {
                mesh.arrived(agent);
                return;
            }
            membership.certify(agent);
            mesh.arrived(agent);
            // To processes that it wrote to before, the agent shows the new certificate.
            mesh.renewed(agent);
            late.remove(agent);
            membership.reportActive(agent);
            LOG.log(Level.INFO, "{0} is {0}@{1}", new Object[] {agent, platform});
            if (directory != null) {
                directory.began(agent);
            }
        } catch (IOException | GeneralSecurityException why) {
            boolean mayPass = why instanceof IOException failed && Membership.mayPass(failed);
            // The directory looks for a late one again.
            if (mayPass ? late.add(agent) : refused.add(agent)) {
                LOG.log(Level.WARNING, agent + " gets no certificate" + (mayPass ? " yet: " : ": ") + why.getMessage(), why);
            }
        }
    }

    /** The container runs as long as its JVM, whatever becomes of the agent with its name. */
    private boolean isContainer(String agent) {
        return agent.equals(membership.name());
    }

    /** An agent here was revoked. */
    void revoked(String agent) {
        refused.add(agent);
        mesh.left(agent);
        post.left(agent);
    }

    /** JADE ends an agent here, or begins to move or to copy it. */
    private void parts(AID agent, boolean isEnd) {
        String local = agent.getLocalName();
        if (!names.contains(local)) {
            return;
        }
        synchronized (mesh) {
            // No message is just being given to it. The mesh waits for no agent that JADE holds.
            parting.begin(local);
        }
        if (isEnd) {
            if (mesh.isPresent(local) && !isContainer(local)) {
                returnUnread(agent);
            }
            ended(local);
        }
    }

    /** An agent ends. The authors of messages that it has not read hear of that (as in {@code crates/bus/src/attachment.rs}). */
    private void returnUnread(AID agent) {
        for (ACLMessage message : parting.unread(agent)) {
            AID author = new AID(outside(claimed(message)), AID.ISGUID);
            boolean isToBeAnswered = SealbusHelper.provenance(message) == SealbusHelper.Provenance.PROVED
                    && !author.getName().equals(AMS + "@" + platform);
            // A message that came along with the agent from another container is answered by the agent itself.
            if (!parting.giveBack(message) && isToBeAnswered) {
                send(agent, Failure.of(message, agent, author, outside(agent.getName()), UNREAD), author);
            }
        }
    }

    private synchronized void ended(String agent) {
        refused.remove(agent);
        late.remove(agent);
        if (mesh.isPresent(agent)) {
            mesh.left(agent);
            post.left(agent);
            if (isContainer(agent)) {
                return;
            }
            // Without its certificate nobody would believe what it has sent.
            mesh.settle(agent);
            membership.reportEnded(agent);
        }
    }

    /** The name that an agent of JADE has on the Sealbus platform. */
    private String outside(String name) {
        int at = name.lastIndexOf('@');
        boolean isOurs = at > 0 && name.substring(at + 1).equals(jade) && names.contains(name.substring(0, at));
        return isOurs ? name.substring(0, at + 1) + platform : name;
    }

    /** The name that an agent of the Sealbus platform has in JADE. */
    private String inside(String name) {
        String local = mesh.local(name);
        return local != null && names.contains(local) ? local + "@" + jade : name;
    }

    /** Sends a message of an agent here. {@code sender} is the agent that sends it, whatever the message says. */
    void send(AID sender, ACLMessage message, AID receiver) {
        String why;
        try {
            String claimed = message.getSender() == null ? "nobody" : message.getSender().getName();
            if (!claimed.equals(sender.getName())) {
                why = sender.getName() + " wrote under the name of " + claimed;
                LOG.log(Level.WARNING, "a message is refused: {0}", why);
            } else if (!mesh.isPresent(sender.getLocalName())) {
                why = sender.getName() + " has no name on the Sealbus platform " + platform
                        + ": the ticket of its container must name it";
            } else {
                Letter letter = new Letter(sender.getLocalName(), receiver.getName(), write(message));
                String local = mesh.local(receiver.getName());
                if (!mesh.isPresent(local)) {
                    checkPermitted(outside(sender.getName()), receiver.getName(), askers(message));
                    mesh.routes.send(letter);
                    return;
                }
                if (deliver(local, outside(sender.getName()), letter.payload(), () -> undelivered(letter, UNREAD))) {
                    return;
                }
                why = "it has just ended, or is moving";
            }
        } catch (IOException | IllegalArgumentException | BitEfficient.Malformed | Mesh.Refused refused) {
            why = refused.getMessage();
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            why = sender.getName() + " was interrupted";
        }
        failed(sender, message, receiver.getName(), why);
    }

    /** Tells an agent here that its message did not arrive. */
    private void failed(AID sender, ACLMessage message, String receiver, String why) {
        // Such notices never answer each other.
        if (message.getPerformative() == ACLMessage.FAILURE && sender.equals(container.getAMS())) {
            return;
        }
        if (!hand(Failure.of(message, container.getAMS(), sender, receiver, why), sender)) {
            LOG.log(Level.WARNING, "{0} has left, and its message to {1} did not arrive: {2}",
                    new Object[] {sender.getName(), receiver, why});
        }
    }

    @Override
    public boolean deliver(String agent, String sender, byte[] bytes, Runnable unread)
            throws BitEfficient.Malformed, Mesh.Refused {
        if (parting.has(agent)) {
            return false;
        }
        ACLMessage message = BitEfficient.read(bytes, this::inside);
        parting.await(message, unread);
        String claimed = claimed(message);
        boolean isRelayed = sender.equals(GATEWAY + "@" + platform) && isOfOthers(claimed);
        boolean isNotice = isRelayed && mesh.local(claimed) != null && message.getPerformative() == ACLMessage.FAILURE;
        return deliver(agent, isRelayed ? null : sender, isNotice, message, Map.of());
    }

    @Override
    public boolean deliverKept(String agent, String sender, boolean isNotice, byte[] bytes, Map<String, String> facts)
            throws BitEfficient.Malformed, Mesh.Refused {
        return deliver(agent, sender, isNotice, BitEfficient.read(bytes, this::inside), facts);
    }

    private boolean deliver(String agent, String sender, boolean isNotice, ACLMessage message, Map<String, String> facts)
            throws Mesh.Refused {
        check(sender, message);
        // The platform's own notices ask nobody.
        if (!isNotice) {
            checkPermitted(sender == null ? GATEWAY + "@" + platform : sender, agent + "@" + platform, askers(message));
        }
        return hand(withFacts(sender, message, facts), new AID(agent + "@" + jade, AID.ISGUID));
    }

    @Override
    public boolean deliver(String agent, String sender, byte[] bytes, Map<String, String> facts)
            throws BitEfficient.Malformed, Mesh.Refused {
        return !parting.has(agent) && hand(open(sender, bytes, facts), new AID(agent + "@" + jade, AID.ISGUID));
    }

    @Override
    public ACLMessage open(String sender, byte[] bytes, Map<String, String> facts) throws BitEfficient.Malformed, Mesh.Refused {
        ACLMessage message = BitEfficient.read(bytes, this::inside);
        check(sender, message);
        askers(message);
        return withFacts(sender, message, facts);
    }

    /** The agents on whose behalf a message asks. Its sender was checked. */
    List<String> askers(ACLMessage message) throws Mesh.Refused {
        return Delegation.of(message, outside(claimed(message)));
    }

    /** Checks whose name a message bears. {@code sender}: the whole name that was proved; null: it came from the gateway. */
    private void check(String sender, ACLMessage message) throws Mesh.Refused {
        String claimed = claimed(message);
        if (sender == null ? !isOfOthers(claimed) : !claimed.equals(inside(sender))) {
            throw new Mesh.Refused("forged-sender", (sender == null ? "an agent of another platform" : sender)
                    + " wrote under the name of " + claimed);
        }
    }

    private ACLMessage withFacts(String sender, ACLMessage message, Map<String, String> facts) {
        // A sender cannot write these parameters itself.
        Facts.remove(message);
        message.addUserDefinedParameter(PROVENANCE, sender == null ? FOREIGN : PROVED);
        facts.forEach(message::addUserDefinedParameter);
        return message;
    }

    private static String claimed(ACLMessage message) {
        return message.getSender() == null ? "" : message.getSender().getName();
    }

    /** Whether the gateway may bring messages of this sender. */
    private boolean isOfOthers(String claimed) {
        return mesh.local(claimed) == null || claimed.equals(AMS + "@" + platform);
    }

    /** A message as it goes to Sealbus. */
    byte[] write(ACLMessage message) {
        return BitEfficient.write(message, this::outside);
    }

    /** An event as it goes to Sealbus. */
    byte[] writeEvent(ACLMessage message) {
        return BitEfficient.writeEvent(message, this::outside);
    }

    /** Answers to what the directory sent in an agent's name are the directory's. */
    private boolean hand(ACLMessage message, AID receiver) {
        String answers = message.getInReplyTo();
        boolean isErrand = answers != null && answers.startsWith(errand);
        return parting.give(message, isErrand ? directory.getAID() : receiver);
    }

    @Override
    public boolean hasRoom(String agent) {
        return !parting.has(agent) && parting.unreadCount(new AID(agent + "@" + jade, AID.ISGUID)) < MOST_UNREAD;
    }

    @Override
    public void undelivered(Letter letter, String why) {
        if (parting.has(letter.sender())) {
            mesh.laterGuarded(() -> undelivered(letter, why), Parting.PAUSE);
            return;
        }
        try {
            AID sender = new AID(letter.sender() + "@" + jade, AID.ISGUID);
            failed(sender, BitEfficient.read(letter.payload(), this::inside), letter.receiver(), why);
        } catch (BitEfficient.Malformed impossible) {
            LOG.log(Level.WARNING, "a message came back that cannot be read", impossible);
        }
    }

    @Override
    public void shutdown() {
        if (mesh != null) {
            mesh.close();
            post.close();
        }
        super.shutdown();
    }
}
